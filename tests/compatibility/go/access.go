package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Cell is one access that is tried; ../programs/command_line.py has the words.
type Cell struct {
	Identity  string `json:"identity"`
	Verb      string `json:"verb"`
	Mechanism string `json:"mechanism"`
	Token     string `json:"token"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	LimitMs   int    `json:"limit_ms"`
}

const (
	accessLimit = 20 * time.Second
	atATime     = 4
)

// What franz-go makes of the error that a broker sends as a challenge (RFC 7628, 3.2.2).
const oauthRefusal = "unexpected data in oauth response"

var errNotListed = errors.New("NOT_LISTED")

// access tries all cells, those of one identity one after another.
func access(asked Asked, try func(Asked, Cell) error) error {
	var cells []Cell
	if err := json.NewDecoder(os.Stdin).Decode(&cells); err != nil {
		return err
	}
	sequences := map[string][]Cell{}
	for _, cell := range cells {
		sequences[cell.Identity] = append(sequences[cell.Identity], cell)
	}
	var all sync.WaitGroup
	free := make(chan struct{}, atATime)
	for _, sequence := range sequences {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			for _, cell := range sequence {
				emitAccess(cell, try(asked, cell))
			}
		})
	}
	all.Wait()
	return nil
}

func emitAccess(cell Cell, err error) {
	event := fields{"identity": cell.Identity, "verb": cell.Verb, "error": ""}
	if err != nil {
		event["error"], event["message"] = accessWord(err), err.Error()
	}
	emit("access", event)
}

func accessWord(err error) string {
	var ofFranz *kerr.Error
	switch {
	case errors.Is(err, errNotListed):
		return errNotListed.Error()
	case errors.As(err, &ofFranz):
		return ofFranz.Message
	case strings.Contains(err.Error(), oauthRefusal):
		return kerr.SaslAuthenticationFailed.Message
	default:
		return "NO_ANSWER"
	}
}

func (c Cell) limit() time.Duration {
	if c.LimitMs > 0 {
		return time.Duration(c.LimitMs) * time.Millisecond
	}
	return accessLimit
}

func (c Cell) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.limit())
}

func trusted(asked Asked) (*tls.Config, error) {
	text, err := os.ReadFile(asked.CA)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("expected authorities in %s", asked.CA)
	}
	return &tls.Config{RootCAs: authorities}, nil
}

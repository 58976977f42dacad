package main

import (
	"os"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	kafka "github.com/segmentio/kafka-go"
)

// The environment has a token, or a user and a password, where the cluster asks who its clients are.
func token() string    { return os.Getenv("TIDEMARK_TOKEN") }
func user() string     { return os.Getenv("TIDEMARK_USER") }
func password() string { return os.Getenv("TIDEMARK_PASSWORD") }

func franzAuth() []kgo.Opt {
	if token() != "" {
		return []kgo.Opt{kgo.SASL(oauth.Auth{Token: token()}.AsMechanism())}
	}
	if user() != "" {
		return []kgo.Opt{kgo.SASL(scram.Auth{User: user(), Pass: password()}.AsSha512Mechanism())}
	}
	return nil
}

func franzSeeds(asked Asked) []kgo.Opt {
	return append(franzAuth(), kgo.SeedBrokers(asked.Bootstrap...))
}

type saramaToken string

func (t saramaToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func saramaAuth(config *sarama.Config) {
	if token() != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypeOAuth
		config.Net.SASL.TokenProvider = saramaToken(token())
	} else if user() != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = user(), password()
	}
}

func kafkaGoTransport() kafka.RoundTripper {
	if user() == "" {
		return kafka.DefaultTransport
	}
	return &kafka.Transport{SASL: plain.Mechanism{Username: user(), Password: password()}}
}

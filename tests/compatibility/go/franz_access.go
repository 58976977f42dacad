package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func franzAccess(asked Asked, cell Cell) error {
	trust, err := trusted(asked)
	if err != nil {
		return err
	}
	options := append(franzCredentials(cell), kgo.SeedBrokers(asked.Bootstrap...), kgo.DialTLSConfig(trust))
	options = append(options, kgo.RetryTimeout(cell.limit()), kgo.RecordDeliveryTimeout(cell.limit()))
	switch cell.Verb {
	case "consume":
		from := map[string]map[int32]kgo.Offset{cell.Topic: {0: kgo.NewOffset().AtStart()}}
		options = append(options, kgo.ConsumePartitions(from))
	case "group":
		options = append(options, kgo.ConsumerGroup(cell.Group), kgo.ConsumeTopics(cell.Topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := cell.context()
	defer cancel()
	switch cell.Verb {
	case "produce":
		return client.ProduceSync(ctx, &kgo.Record{Topic: cell.Topic, Value: []byte("go")}).FirstErr()
	case "consume", "group":
		return franzReads(ctx, client, cell.Verb == "group")
	default:
		return franzAdministrates(ctx, kadm.NewClient(client), cell)
	}
}

func franzReads(ctx context.Context, client *kgo.Client, commits bool) error {
	fetched := client.PollRecords(ctx, 10)
	if err := fetched.Err(); err != nil {
		return err
	}
	if commits {
		return client.CommitUncommittedOffsets(ctx)
	}
	return nil
}

func franzCredentials(cell Cell) []kgo.Opt {
	switch cell.Mechanism {
	case "OAUTHBEARER":
		return []kgo.Opt{kgo.SASL(oauth.Auth{Token: cell.Token}.AsMechanism())}
	case "SCRAM-SHA-512":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: cell.User, Pass: cell.Password}.AsSha512Mechanism())}
	case "PLAIN":
		return []kgo.Opt{kgo.SASL(plain.Auth{User: cell.User, Pass: cell.Password}.AsMechanism())}
	default:
		return nil
	}
}

func franzAdministrates(ctx context.Context, admin *kadm.Client, cell Cell) error {
	switch cell.Verb {
	case "list":
		listed, err := admin.ListTopics(ctx)
		if err == nil && !listed.Has(cell.Topic) {
			err = errNotListed
		}
		return err
	case "describe":
		described, err := admin.ListTopics(ctx, cell.Topic)
		if err == nil {
			err = described.Error()
		}
		return err
	case "create":
		_, err := admin.CreateTopic(ctx, 1, 3, nil, cell.Topic)
		return err
	case "alter":
		hour := "3600000"
		changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: retention, Value: &hour}}
		altered, err := admin.AlterTopicConfigs(ctx, changes, cell.Topic)
		if err == nil {
			err = altered[0].Err
		}
		return err
	case "delete":
		_, err := admin.DeleteTopic(ctx, cell.Topic)
		return err
	default:
		return fmt.Errorf("expected a verb, found %q", cell.Verb)
	}
}

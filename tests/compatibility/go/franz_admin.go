package main

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func franzAdmin(asked Asked) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, admin := context.Background(), kadm.NewClient(client)
	hour, hours := strconv.Itoa(hourMs), strconv.Itoa(2*hourMs)
	if _, err := admin.CreateTopic(ctx, 2, 3, map[string]*string{retention: &hour}, asked.Topic); err != nil {
		return err
	}
	franzTellTopic(ctx, admin, asked.Topic, 2, 1)
	grown, err := admin.UpdatePartitions(ctx, 4, asked.Topic)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		return err
	}
	changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: retention, Value: &hours}}
	altered, err := admin.AlterTopicConfigs(ctx, changes, asked.Topic)
	if err != nil {
		return err
	}
	if altered[0].Err != nil {
		return altered[0].Err
	}
	franzTellTopic(ctx, admin, asked.Topic, 4, 2)
	if _, err := admin.DeleteTopic(ctx, asked.Topic); err != nil {
		return err
	}
	emit("topic_deleted", fields{})
	return nil
}

func franzTellTopic(ctx context.Context, admin *kadm.Client, topic string, partitions, hours int) {
	count := func() (int, error) {
		topics, err := admin.ListTopics(ctx, topic)
		return len(topics[topic].Partitions), err
	}
	retentionMs := func() (int, error) {
		configs, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return 0, err
		}
		for _, config := range configs[0].Configs {
			if config.Key == retention {
				return strconv.Atoi(config.MaybeValue())
			}
		}
		return 0, configs[0].Err
	}
	tellTopic(count, retentionMs, partitions, hours)
}

package main

import (
	"context"
	"strconv"

	kafka "github.com/segmentio/kafka-go"
)

func kafkaGoAdmin(asked Asked) error {
	ctx, client := context.Background(), kafkaGoClient(asked)
	hour, hours := strconv.Itoa(hourMs), strconv.Itoa(2*hourMs)
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: asked.Topic, NumPartitions: 2, ReplicationFactor: 3,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: retention, ConfigValue: hour}},
	}}})
	if err == nil {
		err = created.Errors[asked.Topic]
	}
	if err != nil {
		return err
	}
	kafkaGoTellTopic(ctx, client, asked.Topic, 2, 1)
	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: asked.Topic, Count: 4}},
	})
	if err == nil {
		err = grown.Errors[asked.Topic]
	}
	if err != nil {
		return err
	}
	if err := kafkaGoAlter(ctx, client, asked.Topic, hours); err != nil {
		return err
	}
	kafkaGoTellTopic(ctx, client, asked.Topic, 4, 2)
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{asked.Topic}})
	if err == nil {
		err = deleted.Errors[asked.Topic]
	}
	if err != nil {
		return err
	}
	emit("topic_deleted", fields{})
	return nil
}

func kafkaGoAlter(ctx context.Context, client *kafka.Client, topic, value string) error {
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: retention, Value: value, ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	if err != nil {
		return err
	}
	return altered.Resources[0].Error
}

func kafkaGoTellTopic(ctx context.Context, client *kafka.Client, topic string, partitions, hours int) {
	count := func() (int, error) {
		found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return 0, err
		}
		return len(found.Topics[0].Partitions), nil
	}
	retentionMs := func() (int, error) {
		configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{retention},
			}},
		})
		if err != nil {
			return 0, err
		}
		if configs.Resources[0].Error != nil {
			return 0, configs.Resources[0].Error
		}
		return strconv.Atoi(configs.Resources[0].ConfigEntries[0].ConfigValue)
	}
	tellTopic(count, retentionMs, partitions, hours)
}

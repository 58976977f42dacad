package main

import (
	"strconv"

	"github.com/IBM/sarama"
)

func saramaAdmin(asked Asked) error {
	admin, err := sarama.NewClusterAdmin(asked.Bootstrap, saramaConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	hour, hours := strconv.Itoa(hourMs), strconv.Itoa(2*hourMs)
	wanted := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 3, ConfigEntries: map[string]*string{retention: &hour},
	}
	if err := admin.CreateTopic(asked.Topic, wanted, false); err != nil {
		return err
	}
	saramaTellTopic(admin, asked.Topic, 2, 1)
	if err := admin.CreatePartitions(asked.Topic, 4, nil, false); err != nil {
		return err
	}
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		retention: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hours},
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, asked.Topic, change, false); err != nil {
		return err
	}
	saramaTellTopic(admin, asked.Topic, 4, 2)
	if err := admin.DeleteTopic(asked.Topic); err != nil {
		return err
	}
	emit("topic_deleted", fields{})
	return nil
}

func saramaTellTopic(admin sarama.ClusterAdmin, topic string, partitions, hours int) {
	count := func() (int, error) {
		topics, err := admin.DescribeTopics([]string{topic})
		if err != nil {
			return 0, err
		}
		return len(topics[0].Partitions), nil
	}
	retentionMs := func() (int, error) {
		wanted := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{retention}}
		configs, err := admin.DescribeConfig(wanted)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(configs[0].Value)
	}
	tellTopic(count, retentionMs, partitions, hours)
}

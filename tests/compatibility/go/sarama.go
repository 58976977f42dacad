package main

import (
	"context"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_1_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	saramaAuth(config)
	return config
}

func saramaProduce(asked Asked) error {
	config := saramaConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = saramaCodecs[asked.Codec]
	config.Producer.Idempotent = asked.Idempotent
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	// Its defaults give a partition up after 300 ms; the others go on for minutes.
	config.Producer.Retry.Max = 600
	config.Net.MaxOpenRequests = 1 // idempotence allows no more
	producer, err := sarama.NewAsyncProducer(asked.Bootstrap, config)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range asked.Count {
			select {
			case sent := <-producer.Successes():
				value, _ := sent.Value.Encode()
				emitSent(value, sent.Partition, sent.Offset, nil)
			case failed := <-producer.Errors():
				value, _ := failed.Msg.Value.Encode()
				emitSent(value, 0, 0, failed.Err)
			}
		}
	}()
	values(asked, func(value []byte) {
		producer.Input() <- &sarama.ProducerMessage{Topic: asked.Topic, Value: sarama.ByteEncoder(value)}
	})
	<-done
	return producer.Close()
}

func saramaConsume(asked Asked) error {
	client, err := sarama.NewClient(asked.Bootstrap, saramaConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partitions, err := client.Partitions(asked.Topic)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		end, err := client.GetOffset(asked.Topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		if err := saramaRead(consumer, asked.Topic, partition, sarama.OffsetOldest, end); err != nil {
			return err
		}
	}
	return nil
}

func saramaRead(consumer sarama.Consumer, topic string, partition int32, from, end int64) error {
	if end == 0 {
		return nil
	}
	reading, err := consumer.ConsumePartition(topic, partition, from)
	if err != nil {
		return err
	}
	defer reading.AsyncClose()
	for {
		select {
		case failed := <-reading.Errors():
			return failed
		case record := <-reading.Messages():
			emitRecord(record.Topic, record.Partition, record.Offset, record.Value)
			if record.Offset+1 >= end {
				return nil
			}
		}
	}
}

func saramaSeek(asked Asked) error {
	client, err := sarama.NewClient(asked.Bootstrap, saramaConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	offset, err := client.GetOffset(asked.Topic, 0, asked.Timestamp)
	if err != nil {
		return err
	}
	return saramaRead(consumer, asked.Topic, 0, offset, offset+1)
}

type saramaMember struct{ asked Asked }

func (member saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	emitPartitions("partitions_assigned", member.asked.Topic, session.Claims()[member.asked.Topic])
	return nil
}

func (member saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	emitPartitions("partitions_revoked", member.asked.Topic, session.Claims()[member.asked.Topic])
	return nil
}

func (member saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		emitRecord(record.Topic, record.Partition, record.Offset, record.Value)
		session.MarkMessage(record, "")
	}
	return nil
}

func saramaGroup(asked Asked) error {
	told := toldToEnd()
	config := saramaConfig()
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	group, err := sarama.NewConsumerGroup(asked.Bootstrap, asked.Group, config)
	if err != nil {
		return err
	}
	go func() {
		for failed := range group.Errors() {
			emit("group_error", fields{"message": failed.Error()})
		}
	}()
	running, end := context.WithCancel(context.Background())
	go func() {
		<-told
		end()
	}()
	for running.Err() == nil {
		if err := group.Consume(running, []string{asked.Topic}, saramaMember{asked}); err != nil {
			emit("group_error", fields{"message": err.Error()})
		}
	}
	return group.Close()
}

package main

import (
	"context"
	"errors"
	"net"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

var kafkaGoCodecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func kafkaGoProduce(asked Asked) error {
	if asked.Idempotent {
		return errors.New("kafka-go has no idempotent producer")
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(asked.Bootstrap...), Topic: asked.Topic, RequiredAcks: kafka.RequireAll,
		Compression: kafkaGoCodecs[asked.Codec], BatchTimeout: 5 * time.Millisecond, Async: true,
		// Its defaults give a batch up after 10 tries within seconds.
		MaxAttempts: 120, WriteBackoffMax: time.Second, Transport: kafkaGoTransport(),
		Completion: func(sent []kafka.Message, err error) {
			for _, message := range sent {
				emitSent(message.Value, int32(message.Partition), message.Offset, err)
			}
		},
	}
	values(asked, func(value []byte) {
		if err := writer.WriteMessages(context.Background(), kafka.Message{Value: value}); err != nil {
			emitSent(value, 0, 0, err)
		}
	})
	return writer.Close()
}

func kafkaGoClient(asked Asked) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(asked.Bootstrap...), Timeout: 30 * time.Second}
}

func kafkaGoConsume(asked Asked) error {
	client := kafkaGoClient(asked)
	found, err := client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{asked.Topic}})
	if err != nil {
		return err
	}
	for _, partition := range found.Topics[0].Partitions {
		wanted := map[string][]kafka.OffsetRequest{asked.Topic: {kafka.LastOffsetOf(partition.ID)}}
		offsets, err := client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{Topics: wanted})
		if err != nil {
			return err
		}
		end := offsets.Topics[asked.Topic][0].LastOffset
		if err := kafkaGoRead(asked, partition.ID, kafka.FirstOffset, end); err != nil {
			return err
		}
	}
	return nil
}

func kafkaGoRead(asked Asked, partition int, from, end int64) error {
	if end == 0 {
		return nil
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: asked.Bootstrap, Topic: asked.Topic, Partition: partition, MaxWait: time.Second,
	})
	defer reader.Close()
	if err := reader.SetOffset(from); err != nil {
		return err
	}
	for {
		record, err := reader.ReadMessage(context.Background())
		if err != nil {
			return err
		}
		emitRecord(record.Topic, int32(record.Partition), record.Offset, record.Value)
		if record.Offset+1 >= end {
			return nil
		}
	}
}

func kafkaGoSeek(asked Asked) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: asked.Bootstrap, Topic: asked.Topic, Partition: 0, MaxWait: time.Second,
		Dialer: &kafka.Dialer{Timeout: 10 * time.Second, Resolver: net.DefaultResolver},
	})
	defer reader.Close()
	err := reader.SetOffsetAt(context.Background(), time.UnixMilli(asked.Timestamp))
	if err != nil {
		return err
	}
	record, err := reader.ReadMessage(context.Background())
	if err != nil {
		return err
	}
	emitRecord(record.Topic, int32(record.Partition), record.Offset, record.Value)
	return nil
}

func kafkaGoGroup(asked Asked) error {
	told := toldToEnd()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: asked.Bootstrap, Topic: asked.Topic, GroupID: asked.Group, MaxWait: 200 * time.Millisecond,
		StartOffset: kafka.FirstOffset, SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second,
		WatchPartitionChanges: true,
	})
	running, end := context.WithCancel(context.Background())
	go func() {
		<-told
		end()
	}()
	for running.Err() == nil {
		record, err := reader.FetchMessage(running)
		if err != nil {
			if running.Err() == nil {
				emit("fetch_error", fields{"message": err.Error()})
			}
			continue
		}
		emitRecord(record.Topic, int32(record.Partition), record.Offset, record.Value)
		offsets := map[int32]int64{int32(record.Partition): record.Offset + 1}
		emitCommitted(asked.Topic, offsets, reader.CommitMessages(running, record))
	}
	return reader.Close()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func franzProduce(asked Asked) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Bootstrap...), kgo.DefaultProduceTopic(asked.Topic),
		kgo.ProducerBatchCompression(franzCodecs[asked.Codec]), kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(append(options, franzAuth()...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	values(asked, func(value []byte) {
		record := &kgo.Record{Value: value}
		client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			emitSent(sent.Value, sent.Partition, sent.Offset, err)
		})
	})
	return client.Flush(context.Background())
}

func franzConsume(asked Asked) error {
	client, err := kgo.NewClient(franzSeeds(asked)...)
	if err != nil {
		return err
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(context.Background(), asked.Topic)
	if err != nil {
		return err
	}
	wanted := map[int32]kgo.Offset{}
	ends := map[int32]int64{}
	for partition, end := range listed[asked.Topic] {
		if end.Err != nil {
			return end.Err
		}
		if end.Offset > 0 {
			wanted[partition] = kgo.NewOffset().AtStart()
			ends[partition] = end.Offset
		}
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: wanted})
	for len(ends) > 0 {
		fetched := client.PollFetches(context.Background())
		if err := fetched.Err(); err != nil {
			return err
		}
		fetched.EachRecord(func(record *kgo.Record) {
			emitRecord(record.Topic, record.Partition, record.Offset, record.Value)
			if record.Offset+1 >= ends[record.Partition] {
				delete(ends, record.Partition)
			}
		})
	}
	return nil
}

func franzSeek(asked Asked) error {
	from := kgo.NewOffset().AfterMilli(asked.Timestamp)
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {0: from}}))
	if err != nil {
		return err
	}
	defer client.Close()
	fetched := client.PollRecords(context.Background(), 1)
	if err := fetched.Err(); err != nil {
		return err
	}
	record := fetched.Records()[0]
	emitRecord(record.Topic, record.Partition, record.Offset, record.Value)
	return nil
}

func franzGroup(asked Asked) error {
	told := toldToEnd()
	tell := func(name string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			emitPartitions(name, asked.Topic, changed[asked.Topic])
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap...), kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(6*time.Second),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("partitions_assigned")),
		kgo.OnPartitionsRevoked(tell("partitions_revoked")),
		kgo.OnPartitionsLost(tell("partitions_revoked")),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		select {
		case <-told:
			return nil
		default:
		}
		soon, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetched := client.PollFetches(soon)
		cancel()
		offsets := map[int32]int64{}
		fetched.EachRecord(func(record *kgo.Record) {
			emitRecord(record.Topic, record.Partition, record.Offset, record.Value)
			offsets[record.Partition] = record.Offset + 1
		})
		for _, failed := range fetched.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				emit("fetch_error", fields{"message": fmt.Sprint(failed.Err)})
			}
		}
		if len(offsets) > 0 {
			emitCommitted(asked.Topic, offsets, client.CommitUncommittedOffsets(context.Background()))
		}
		client.AllowRebalance()
	}
}

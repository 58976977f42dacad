// One program for three Go clients: go-clients CLIENT WORK --option value ...
// Works, options and the words of the answers are those of ../programs/command_line.py.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

type Asked struct {
	Bootstrap  []string
	Topic      string
	Prefix     int
	Count      int
	Rate       int
	Codec      string
	Idempotent bool
	Timestamp  int64
	Group      string
	CA         string
}

type Client struct {
	Produce, Consume, Seek, Group, Admin func(Asked) error
}

const (
	hourMs    = 3_600_000
	retention = "retention.ms"
)

var clients = map[string]Client{
	"franz-go": {franzProduce, franzConsume, franzSeek, franzGroup, franzAdmin},
	"sarama":   {saramaProduce, saramaConsume, saramaSeek, saramaGroup, saramaAdmin},
	"kafka-go": {kafkaGoProduce, kafkaGoConsume, kafkaGoSeek, kafkaGoGroup, kafkaGoAdmin},
}

// The clients whose accesses are tried; cells come by standard input.
var tryAccess = map[string]func(Asked, Cell) error{
	"franz-go": franzAccess,
}

func main() {
	if err := work(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func work(arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("expected CLIENT WORK --options, found %q", arguments)
	}
	client, known := clients[arguments[0]]
	works := map[string]func(Asked) error{
		"produce": client.Produce, "consume": client.Consume,
		"seek": client.Seek, "group": client.Group, "admin": client.Admin,
	}
	if try := tryAccess[arguments[0]]; try != nil {
		works["access"] = func(asked Asked) error { return access(asked, try) }
	}
	chosen := works[arguments[1]]
	if !known || chosen == nil {
		return fmt.Errorf("expected a client and a work, found %q", arguments[:2])
	}
	asked, err := parse(arguments[2:])
	if err != nil {
		return err
	}
	return chosen(asked)
}

func parse(arguments []string) (Asked, error) {
	var asked Asked
	var bootstrap string
	flags := flag.NewFlagSet("go-clients", flag.ContinueOnError)
	flags.StringVar(&bootstrap, "bootstrap", "", "host:port,host:port")
	flags.StringVar(&asked.Topic, "topic", "", "")
	flags.IntVar(&asked.Prefix, "prefix", 0, "values are PREFIX.NUMBER")
	flags.IntVar(&asked.Count, "count", 0, "")
	flags.IntVar(&asked.Rate, "rate", 0, "records a second, 0: no pause")
	flags.StringVar(&asked.Codec, "codec", "none", "")
	flags.BoolVar(&asked.Idempotent, "idempotent", false, "")
	flags.Int64Var(&asked.Timestamp, "timestamp", 0, "ms")
	flags.StringVar(&asked.Group, "group", "", "")
	flags.StringVar(&asked.CA, "ca", "", "file of authorities")
	err := flags.Parse(arguments)
	asked.Bootstrap = strings.Split(bootstrap, ",")
	return asked, err
}

type fields map[string]any

var output sync.Mutex

func emit(name string, more fields) {
	more["name"] = name
	line, err := json.Marshal(more)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func emitSent(value []byte, partition int32, offset int64, err error) {
	if err != nil {
		emit("producer_send_error", fields{"value": string(value), "message": err.Error()})
		return
	}
	more := fields{"value": string(value), "partition": partition, "offset": offset}
	emit("producer_send_success", more)
}

func emitRecord(topic string, partition int32, offset int64, value []byte) {
	place := fields{"topic": topic, "partition": partition, "offset": offset}
	place["value"] = string(value)
	emit("record_data", place)
}

func emitPartitions(name, topic string, partitions []int32) {
	places := []fields{}
	for _, partition := range partitions {
		places = append(places, fields{"topic": topic, "partition": partition})
	}
	emit(name, fields{"partitions": places})
}

func emitCommitted(topic string, offsets map[int32]int64, err error) {
	if err != nil {
		emit("offsets_committed", fields{"success": false, "error": err.Error()})
		return
	}
	places := []fields{}
	for partition, offset := range offsets {
		places = append(places, fields{"topic": topic, "partition": partition, "offset": offset})
	}
	emit("offsets_committed", fields{"success": true, "offsets": places})
}

// values calls send with PREFIX.0, PREFIX.1, ..., each at its time.
func values(asked Asked, send func([]byte)) {
	began := time.Now()
	for number := range asked.Count {
		if asked.Rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(number) * time.Second / time.Duration(asked.Rate))))
		}
		send(fmt.Appendf(nil, "%d.%d", asked.Prefix, number))
	}
}

// seen is what look finds at last: brokers hear of a change one after another.
func seen(look func() (int, error), wanted int) int {
	found := -1
	for range 150 {
		if now, err := look(); err == nil {
			found = now
		}
		if found == wanted {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return found
}

func tellTopic(count, retentionMs func() (int, error), partitions, hours int) {
	emit("partition_count", fields{"count": seen(count, partitions)})
	emit("retention_ms", fields{"value": seen(retentionMs, hours*hourMs)})
}

func toldToEnd() <-chan os.Signal {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	return told
}

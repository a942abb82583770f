// A client of Go (franz-go) that neaptide drives: it speaks the lines of docs/clients.md.
//
//	go build -o franz-go-client . && neaptide client --system neaptide:4.0 -- ./franz-go-client
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const library = "github.com/twmb/franz-go"

// Request has the fields of all requests; each uses some.
type Request struct {
	ID              int               `json:"id"`
	Do              string            `json:"do"`
	DeadlineS       float64           `json:"deadline_s"`
	Kind            string            `json:"kind"`
	Bootstrap       string            `json:"bootstrap"`
	Topic           string            `json:"topic"`
	Group           *string           `json:"group"`
	TransactionalID *string           `json:"transactional_id"`
	Settings        map[string]string `json:"settings"`
	Records         json.RawMessage   `json:"records"` // values to send, or how many to poll
	Partition       int32             `json:"partition"`
	Key             *string           `json:"key"`
	Waits           bool              `json:"waits"`
	Offsets         []struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	} `json:"offsets"`
}

type row map[string]any

// refused is what was answered to a request, by its name.
type refused struct{ name string }

func (r refused) Error() string { return r.name }

var writing sync.Mutex

func say(one row) {
	writing.Lock()
	defer writing.Unlock()
	line, _ := json.Marshal(one)
	os.Stdout.Write(append(line, '\n'))
}

// name is Kafka's name of an error, if Kafka has one.
func name(err error) string {
	if known := (*kerr.Error)(nil); errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func answered(err error) error {
	if err == nil {
		return nil
	}
	return refused{name(err)}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var client *Client
	for lines.Scan() { // it ends when standard input ends
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		answer, err := row{"id": request.ID}, error(nil)
		switch request.Do {
		case "describe":
			answer["client"], answer["version"] = "franz-go", version()
			answer["can"] = []string{"idempotence", "transactions", "groups"}
		case "start":
			client, err = start(request)
		default:
			err = client.handle(request)
		}
		if named := (refused{}); errors.As(err, &named) {
			answer["error"] = named.name
		} else if err != nil {
			answer["problem"] = err.Error()
		}
		say(answer)
	}
}

func version() string {
	built, _ := debug.ReadBuildInfo()
	for _, one := range built.Deps {
		if one.Path == library {
			return one.Version
		}
	}
	return ""
}

// Client is a producer or a consumer. A consumer is connected when it is known what it reads.
type Client struct {
	of      Request
	options []kgo.Opt
	kgo     *kgo.Client
	ends    sync.WaitGroup // of sends
	mutex   sync.Mutex
	has     map[int32]bool
	gains   chan struct{}
	epochs  map[int32]int32
}

func start(request Request) (*Client, error) {
	client := &Client{
		of: request, has: map[int32]bool{}, gains: make(chan struct{}, 1), epochs: map[int32]int32{},
		options: []kgo.Opt{
			kgo.SeedBrokers(strings.Split(request.Bootstrap, ",")...),
			kgo.MetadataMinAge(50 * time.Millisecond),
			kgo.MetadataMaxAge(2 * time.Second),
		},
	}
	if request.Kind == "consumer" {
		return client, client.consumer()
	}
	return client, client.producer()
}

func (c *Client) setting(name, otherwise string) string {
	if given, ok := c.of.Settings[name]; ok {
		return given
	}
	return otherwise
}

func (c *Client) milliseconds(name string, otherwise int) time.Duration {
	given, err := strconv.Atoi(c.setting(name, ""))
	if err != nil {
		given = otherwise
	}
	return time.Duration(given) * time.Millisecond
}

func (c *Client) producer() (err error) {
	acks := map[string]kgo.Acks{
		"0": kgo.NoAck(), "1": kgo.LeaderAck(), "-1": kgo.AllISRAcks(), "all": kgo.AllISRAcks(),
	}
	inFlight, _ := strconv.Atoi(c.setting("max.in.flight.requests.per.connection", "1"))
	wait := c.milliseconds("retry.backoff.ms", 50)
	c.options = append(c.options,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(acks[c.setting("acks", "all")]),
		kgo.ProducerLinger(c.milliseconds("linger.ms", 5)),
		kgo.ProduceRequestTimeout(c.milliseconds("request.timeout.ms", 5_000)),
		kgo.RecordDeliveryTimeout(c.milliseconds("delivery.timeout.ms", 10_000)),
		kgo.RetryBackoffFn(func(int) time.Duration { return wait }),
	)
	transacts := c.of.TransactionalID != nil
	if transacts {
		c.options = append(c.options, kgo.TransactionalID(*c.of.TransactionalID))
	} else if c.setting("enable.idempotence", "false") != "true" {
		retries, _ := strconv.Atoi(c.setting("retries", "0"))
		c.options = append(c.options, kgo.DisableIdempotentWrite(),
			kgo.MaxProduceRequestsInflightPerBroker(inFlight), kgo.RecordRetries(retries))
	}
	if c.kgo, err = kgo.NewClient(c.options...); err != nil || !transacts {
		return err
	}
	within, cancel := c.within(c.of)
	defer cancel()
	_, _, err = c.kgo.ProducerID(within)
	return answered(err)
}

func (c *Client) consumer() error {
	reset := map[string]kgo.Offset{
		"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd(),
		"error": kgo.NoResetOffset(), "none": kgo.NoResetOffset(),
	}
	c.options = append(c.options,
		kgo.ConsumeResetOffset(reset[c.setting("auto.offset.reset", "earliest")]),
		kgo.FetchMaxWait(c.milliseconds("fetch.max.wait.ms", 500)),
	)
	if c.setting("isolation.level", "read_committed") == "read_committed" {
		c.options = append(c.options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return nil
}

func (c *Client) within(request Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(request.DeadlineS*float64(time.Second)))
}

func (c *Client) handle(request Request) error {
	within, cancel := c.within(request)
	defer cancel()
	switch request.Do {
	case "send":
		return c.send(within, request)
	case "begin_transaction":
		return answered(c.kgo.BeginTransaction())
	case "commit_transaction":
		if err := c.kgo.Flush(within); err != nil {
			return answered(err)
		}
		return answered(c.kgo.EndTransaction(within, kgo.TryCommit))
	case "abort_transaction":
		if err := c.kgo.AbortBufferedRecords(within); err != nil {
			return answered(err)
		}
		return answered(c.kgo.EndTransaction(within, kgo.TryAbort))
	case "subscribe":
		return c.subscribe(within)
	case "assign":
		return c.assign(request.Partition)
	case "poll":
		return c.poll(within, request)
	case "commit":
		return c.commit(within, request)
	case "stall", "wake": // franz-go keeps its place in a group without polls
		return nil
	case "leave":
		c.kgo.Close()
		return nil
	}
	return fmt.Errorf("there is no request %s", request.Do)
}

// --- a producer ----------------------------------------------------------------------------------

func (c *Client) send(within context.Context, request Request) error {
	var values []string
	if err := json.Unmarshal(request.Records, &values); err != nil {
		return err
	}
	for _, value := range values {
		record := &kgo.Record{Topic: c.of.Topic, Partition: request.Partition, Value: []byte(value)}
		if request.Key != nil {
			record.Key = []byte(*request.Key)
		}
		c.ends.Add(1)
		c.kgo.Produce(context.Background(), record, func(done *kgo.Record, err error) {
			defer c.ends.Done()
			if err == nil {
				say(row{"event": "sent", "value": value, "offset": max(done.Offset, 0)})
				return
			}
			ended := row{"event": "sent", "value": value, "error": name(err)}
			if surely(err) {
				ended["appended"] = false
			}
			say(ended)
		})
	}
	if !request.Waits {
		return nil
	}
	all := make(chan struct{})
	go func() { c.ends.Wait(); close(all) }()
	select {
	case <-all:
		return nil
	case <-within.Done():
		return errors.New("some sends were not answered")
	}
}

// surely: brokers look at these before they append anything.
func surely(err error) bool {
	for _, one := range []error{kerr.MessageTooLarge, kerr.InvalidTopicException, kerr.InvalidRequiredAcks} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// --- a consumer ----------------------------------------------------------------------------------

var assignors = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func (c *Client) subscribe(within context.Context) (err error) {
	var balancers []kgo.GroupBalancer
	for _, one := range strings.Split(c.setting("partition.assignment.strategy", "range"), ",") {
		balancers = append(balancers, assignors[one])
	}
	options := append(c.options,
		kgo.ConsumeTopics(c.of.Topic),
		kgo.ConsumerGroup(*c.of.Group),
		kgo.Balancers(balancers...),
		kgo.SessionTimeout(c.milliseconds("session.timeout.ms", 45_000)),
		kgo.HeartbeatInterval(c.milliseconds("heartbeat.interval.ms", 500)),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, of map[string][]int32) { c.gained(of) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, of map[string][]int32) { c.lost(of) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, of map[string][]int32) { c.lost(of) }),
	)
	if id := c.setting("group.instance.id", ""); id != "" {
		options = append(options, kgo.InstanceID(id))
	}
	if c.setting("enable.auto.commit", "false") == "true" {
		options = append(options,
			kgo.AutoCommitInterval(c.milliseconds("auto.commit.interval.ms", 5_000)),
			kgo.AutoCommitCallback(func(_ *kgo.Client, asked *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
				c.committed(asked, answer, err)
			}))
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	if c.kgo, err = kgo.NewClient(options...); err != nil {
		return err
	}
	select {
	case <-c.gains:
		return nil
	case <-within.Done():
		return errors.New("it was given no partition")
	}
}

func (c *Client) assign(partition int32) (err error) {
	if c.of.Group != nil {
		return errors.New("this client takes a partition without a group only")
	}
	from := map[string]map[int32]kgo.Offset{c.of.Topic: {partition: kgo.NewOffset().AtStart()}}
	c.kgo, err = kgo.NewClient(append(c.options, kgo.ConsumePartitions(from))...)
	if err == nil {
		c.gained(map[string][]int32{c.of.Topic: {partition}})
	}
	return err
}

// gained says what it has now. PollRecords alone takes records: they come when they are asked for.
func (c *Client) gained(of map[string][]int32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, partition := range of[c.of.Topic] {
		c.has[partition] = true
	}
	if len(c.has) > 0 {
		select {
		case c.gains <- struct{}{}:
		default:
		}
	}
	c.sayHas()
}

func (c *Client) lost(of map[string][]int32) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, partition := range of[c.of.Topic] {
		delete(c.has, partition)
	}
	c.sayHas()
}

func (c *Client) sayHas() {
	partitions := make([]int32, 0, len(c.has))
	for partition := range c.has {
		partitions = append(partitions, partition)
	}
	slices.Sort(partitions)
	say(row{"event": "assigned", "partitions": partitions})
}

func (c *Client) poll(within context.Context, request Request) error {
	var wanted int
	if err := json.Unmarshal(request.Records, &wanted); err != nil {
		return err
	}
	for count := 0; count < wanted; {
		fetches := c.kgo.PollRecords(within, wanted-count)
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			c.epochs[record.Partition] = record.LeaderEpoch
			say(row{
				"event": "polled", "value": value(record), "offset": record.Offset,
				"partition": record.Partition, "leader_epoch": record.LeaderEpoch,
			})
		})
		if within.Err() != nil {
			return fmt.Errorf("it took %d of %d records", count, wanted)
		}
		if failed := fetches.Errors(); len(failed) > 0 {
			for _, one := range failed {
				say(row{"event": "notified", "error": name(one.Err)})
			}
			return nil
		}
	}
	return nil
}

func value(record *kgo.Record) any {
	if record.Value == nil {
		return nil
	}
	return string(record.Value)
}

func (c *Client) commit(within context.Context, request Request) error {
	asked := map[int32]kgo.EpochOffset{}
	for _, one := range request.Offsets {
		epoch, known := c.epochs[one.Partition]
		if !known {
			epoch = -1
		}
		asked[one.Partition] = kgo.EpochOffset{Epoch: epoch, Offset: one.Offset}
	}
	all := map[string]map[int32]kgo.EpochOffset{c.of.Topic: asked}
	ended := func(_ *kgo.Client, asked *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		c.committed(asked, answer, err)
	}
	if request.Waits {
		c.kgo.CommitOffsetsSync(within, all, ended)
	} else {
		c.kgo.CommitOffsets(context.Background(), all, ended)
	}
	return nil
}

func (c *Client) committed(asked *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
	failed := map[int32]error{}
	if answer != nil {
		for _, topic := range answer.Topics {
			for _, one := range topic.Partitions {
				failed[one.Partition] = kerr.ErrorForCode(one.ErrorCode)
			}
		}
	}
	for _, topic := range asked.Topics {
		for _, one := range topic.Partitions {
			ended := row{"event": "committed", "partition": one.Partition, "offset": one.Offset}
			if why := errors.Join(err, failed[one.Partition]); why != nil {
				ended["error"] = name(why)
			}
			say(ended)
		}
	}
}

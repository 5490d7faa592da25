// The workloads in Go: a goroutine for each process, a channel for each mailbox.
//
// Where it differs: channels are bounded, and who sends to a full one waits. So nobody runs away from the counter in
// counting and fanin, and the sizes here are such that no one waits in the other workloads. A goroutine gives way when it
// waits, and else when it is preempted. There is no PID: who would send must hold the channel.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	ringSize  = 1000
	producers = 64
	batch     = 100
	friends   = 256
	children  = 10
	// What the counter's channel holds. More does not make it faster.
	backlog = 1024
)

// Tally counts down as goroutines report; the last one closes the channel.
type Tally struct {
	left int64
	over chan struct{}
}

func newTally(reports uint64) *Tally {
	return &Tally{left: int64(reports), over: make(chan struct{})}
}

func (tally *Tally) strike() {
	if atomic.AddInt64(&tally.left, -1) == 0 {
		close(tally.over)
	}
}

// Result of a run: what it took, the operations, and the bytes an actor added if that was measured.
type Result struct {
	took  time.Duration
	ops   uint64
	peak  float64
	bytes float64
}

func since(began time.Time, ops uint64) Result {
	return Result{took: time.Since(began), ops: ops, peak: memory("VmHWM:") / (1 << 20)}
}

// memory reads the resident memory in bytes, now (VmRSS) or at its peak (VmHWM).
func memory(which string) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == which {
			kilobytes, _ := strconv.ParseFloat(fields[1], 64)
			return kilobytes * 1024
		}
	}
	return 0
}

func check(what string, is, mustBe uint64) {
	if is != mustBe {
		fmt.Fprintf(os.Stderr, "go: %s: %d, and it must be %d\n", what, is, mustBe)
		os.Exit(1)
	}
}

func share(n, one, many uint64) uint64 {
	if one < n%many {
		return n/many + 1
	}
	return n / many
}

func hop(inbox <-chan uint64, next chan<- uint64, over chan<- struct{}, end chan<- uint64) {
	had := uint64(0)
	for left := range inbox {
		had++
		if left == 0 {
			close(over)
		} else {
			next <- left - 1
		}
	}
	end <- had
}

// circle: a token goes round; whoever gets it last says so.
func circle(n, size uint64) Result {
	inboxes := make([]chan uint64, size)
	for one := range inboxes {
		inboxes[one] = make(chan uint64, 1)
	}
	over, end := make(chan struct{}), make(chan uint64, size)
	for one := range inboxes {
		go hop(inboxes[one], inboxes[(one+1)%len(inboxes)], over, end)
	}
	began := time.Now()
	inboxes[0] <- n - 1
	<-over
	result := since(began, n)
	had := uint64(0)
	for _, inbox := range inboxes {
		close(inbox)
		had += <-end
	}
	check("hops", had, n)
	return result
}

// counterMessage adds, or asks for the total if there is somewhere to reply to.
type counterMessage struct {
	add   uint64
	reply chan uint64
}

func count(inbox <-chan counterMessage) {
	total := uint64(0)
	for message := range inbox {
		if message.reply != nil {
			message.reply <- total
		} else {
			total += message.add
		}
	}
}

func stream(n, many uint64) Result {
	counter := make(chan counterMessage, backlog)
	go count(counter)
	done := newTally(many)
	began := time.Now()
	for producer := uint64(0); producer < many; producer++ {
		go func(left uint64) {
			for sent := uint64(1); sent <= left; sent++ {
				counter <- counterMessage{add: 1}
				if sent%batch == 0 {
					runtime.Gosched()
				}
			}
			done.strike()
		}(share(n, producer, many))
	}
	<-done.over
	reply := make(chan uint64, 1)
	counter <- counterMessage{reply: reply}
	total := <-reply
	result := since(began, n)
	check("messages counted", total, n)
	close(counter)
	return result
}

func spawn(n uint64) Result {
	ended := newTally(n)
	began := time.Now()
	go func() {
		for spawned := uint64(1); spawned <= n; spawned++ {
			inbox := make(chan struct{}, 1)
			go func() {
				defer ended.strike()
				<-inbox
			}()
			inbox <- struct{}{}
			if spawned%batch == 0 {
				runtime.Gosched()
			}
		}
	}()
	<-ended.over
	return since(began, n)
}

func idle(n uint64) Result {
	waiting, ended := newTally(n), newTally(n)
	before := memory("VmRSS:")
	began := time.Now()
	all := make(chan []chan struct{}, 1)
	go func() {
		inboxes := make([]chan struct{}, 0, n)
		for spawned := uint64(1); spawned <= n; spawned++ {
			inbox := make(chan struct{}, 1)
			go func() {
				defer ended.strike()
				for range inbox {
					waiting.strike()
				}
			}()
			inbox <- struct{}{}
			inboxes = append(inboxes, inbox)
			if spawned%batch == 0 {
				runtime.Gosched()
			}
		}
		all <- inboxes
	}()
	inboxes := <-all
	<-waiting.over
	result := since(began, n)
	result.bytes = (memory("VmRSS:") - before) / float64(n)
	for _, inbox := range inboxes {
		close(inbox)
	}
	<-ended.over
	return result
}

// node stands for so many numbers from first on, and tells its parent their sum. A leaf gets no message, so it has no
// channel.
func node(parent chan<- uint64, first, leaves uint64) {
	if leaves == 1 {
		parent <- first
		return
	}
	inbox, sum := make(chan uint64, children), uint64(0)
	leaves /= children
	for child := uint64(0); child < children; child++ {
		go node(inbox, first+child*leaves, leaves)
	}
	for child := 0; child < children; child++ {
		sum += <-inbox
	}
	parent <- sum
}

func skynet(n uint64) Result {
	root := make(chan uint64, 1)
	began := time.Now()
	go node(root, 0, n)
	sum := <-root
	result := since(began, (n*children-1)/(children-1))
	check("the sum", sum, n*(n-1)/2)
	return result
}

const (
	begin = -1
	pong  = -2
	stop  = -3
)

// friend pings a random other, waits for the pong, and so on. A message is who pings, or one of the constants.
func friend(me int, inboxes []chan int, left uint64, referee chan<- struct{}, end chan<- uint64) {
	answered, random := uint64(0), uint64(me+1)*0x9e3779b97f4a7c15
	next := func() {
		if left == 0 {
			referee <- struct{}{}
			return
		}
		left--
		for {
			random ^= random << 13
			random ^= random >> 7
			random ^= random << 17
			if other := int((random >> 32) % friends); other != me {
				inboxes[other] <- me
				return
			}
		}
	}
	for message := range inboxes[me] {
		switch message {
		case begin, pong:
			next()
		case stop:
			end <- answered
			return
		default:
			answered++
			inboxes[message] <- pong
		}
	}
}

func big(n uint64) Result {
	inboxes := make([]chan int, friends)
	for one := range inboxes {
		// A ping of each other, and one of every other message: so nobody ever waits to send.
		inboxes[one] = make(chan int, friends+3)
	}
	referee, end := make(chan struct{}, friends), make(chan uint64, friends)
	for me := range inboxes {
		go friend(me, inboxes, share(n, uint64(me), friends), referee, end)
	}
	began := time.Now()
	for _, inbox := range inboxes {
		inbox <- begin
	}
	for range inboxes {
		<-referee
	}
	result := since(began, n)
	answered := uint64(0)
	for _, inbox := range inboxes {
		inbox <- stop
		answered += <-end
	}
	check("pings answered", answered, n)
	return result
}

// ask is done on a thread that runs nothing else, so that the one who asks is outside of the scheduler's threads.
func ask(n uint64) Result {
	runtime.LockOSThread()
	numbers := make(chan chan uint64, 1)
	go func() {
		last := uint64(0)
		for reply := range numbers {
			last++
			reply <- last
		}
	}()
	began := time.Now()
	for call := uint64(1); call <= n; call++ {
		reply := make(chan uint64, 1)
		numbers <- reply
		check("the answer", <-reply, call)
	}
	result := since(began, n)
	close(numbers)
	return result
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: peers-go WORKLOAD COUNT WORKERS")
		os.Exit(2)
	}
	workload := os.Args[1]
	n, _ := strconv.ParseUint(os.Args[2], 10, 64)
	workers, _ := strconv.Atoi(os.Args[3])
	programs := map[string]func(uint64) Result{
		"pingpong": func(n uint64) Result { return circle(n, 2) },
		"ring":     func(n uint64) Result { return circle(n, ringSize) },
		"counting": func(n uint64) Result { return stream(n, 1) },
		"fanin":    func(n uint64) Result { return stream(n, producers) },
		"spawn":    spawn, "skynet": skynet, "idle": idle, "big": big, "ask": ask,
	}
	program := programs[workload]
	if program == nil || n == 0 || workers < 1 {
		fmt.Fprintln(os.Stderr, "go: no such workload, or no count")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(workers)
	result := program(n)
	bytes := "null"
	if result.bytes > 0 {
		bytes = fmt.Sprintf("%.1f", result.bytes)
	}
	fmt.Printf("{\"peer\":\"go\",\"workload\":\"%s\",\"n\":%d,\"secs\":%.6f,\"ns_per_op\":%.1f,\"rss_mb\":%.1f,\"bytes_per_actor\":%s}\n",
		workload, n, result.took.Seconds(), float64(result.took.Nanoseconds())/float64(result.ops), result.peak, bytes)
}

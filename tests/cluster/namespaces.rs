//! Three programs in network namespaces, with real cuts: `docs/guarantees/cluster.md`, 50.
//!
//! The test program starts itself: `child_program` is a node. The test cuts, stops and kills nodes by a seed. It reads
//! the lines that they print, and checks them at the end.

mod place;
mod program;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use self::place::{NAMES, Place, address};
use crate::wait::{Mutex, until, wait};

/// The test program as a node. Without the variable this is no test.
#[test]
fn child_program() {
    if let Ok(node) = std::env::var(program::NODE) {
        program::run(&node).expect("the node runs");
    }
}

/// A node that runs.
struct Node {
    child: Child,
    /// The lines that it has printed, with their times.
    said: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Node {
    fn start(place: &Place, at: usize) -> Node {
        let endpoint = |at: usize| format!("tcp/{}:7001", address(at));
        let others = (0..NAMES.len()).filter(|other| *other != at).map(endpoint);
        let words: Vec<_> = [NAMES[at].to_string(), endpoint(at)].into_iter().chain(others).collect();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &place.namespace(NAMES[at])]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "namespaces::child_program", "--nocapture", "--quiet"]);
        command.env(program::NODE, words.join(" ")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the test program can be started");
        let (out, said) = (child.stdout.take().expect("piped"), Arc::new(Mutex::new(Vec::new())));
        let lines = said.clone();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                lines.lock().unwrap().push((Instant::now(), line));
            }
        });
        let node = Node { child, said };
        node.expect(0, "it has started", "started ");
        node
    }

    fn lines(&self) -> usize {
        self.said.lock().unwrap().len()
    }

    /// The first line behind so many others that begins with a text.
    fn find(&self, from: usize, text: &str) -> Option<(Instant, String)> {
        let said = self.said.lock().unwrap();
        said[from..].iter().find(|(_, line)| line.starts_with(text)).cloned()
    }

    #[track_caller]
    fn expect(&self, from: usize, what: &str, text: &str) -> Instant {
        until(&format!("{what}: {text}"), || self.find(from, text).is_some());
        self.find(from, text).expect("it was there").0
    }

    fn tell(&mut self, command: &str) {
        let told = writeln!(self.child.stdin.as_mut().expect("piped"), "{command}");
        told.expect("the node reads");
    }

    fn signal(&self, signal: &str) {
        let told = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status();
        assert!(told.is_ok_and(|status| status.success()));
    }

    fn holdings(&self) -> Vec<Holding> {
        let kept = self.last("keeps ");
        kept.iter().map(|(token, times)| (token.parse().expect("a token"), times[0], times[1])).collect()
    }

    /// The words behind the beginning of each line, the last line of each first word only.
    fn last(&self, beginning: &str) -> BTreeMap<String, Vec<u64>> {
        let said = self.said.lock().unwrap();
        let words = said.iter().filter_map(|(_, line)| line.strip_prefix(beginning)).filter_map(|line| {
            let mut words = line.split(' ');
            let first = words.next()?.to_string();
            Some((first, words.map(str::parse).collect::<Result<_, _>>().ok()?))
        });
        words.collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A holding of the unique name: its token, and when its first and its last step have begun.
type Holding = (u64, u64, u64);

/// How many kinds of weather there are.
const KINDS: u32 = 7;

/// How long it took until nodes were down, and up again.
#[derive(Default)]
struct Times {
    down: BTreeMap<&'static str, Vec<Duration>>,
    up: Vec<Duration>,
}

/// The nodes, and what was seen of them.
struct Nodes {
    place: Place,
    nodes: Vec<Node>,
    times: Times,
    /// The holdings of nodes that were killed.
    holdings: Vec<Holding>,
    /// How often another node has got the unique name, because its holder was stopped or cut off for so long.
    handovers: usize,
}

impl Nodes {
    fn pairs(of: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..NAMES.len()).filter(move |other| *other != of).map(move |other| (of, other))
    }

    fn marks(&self) -> Vec<usize> {
        self.nodes.iter().map(Node::lines).collect()
    }

    /// Does something to a node, waits until all these nodes have told that the others are down, undoes it, and waits
    /// until they are up.
    fn disturb(
        &mut self,
        what: &'static str,
        downs: &[(usize, usize)],
        does: impl FnOnce(&mut Nodes),
        undoes: impl FnOnce(&mut Nodes),
    ) {
        let (marks, began) = (self.marks(), Instant::now());
        does(self);
        for (at, other) in downs {
            let down = self.nodes[*at].expect(marks[*at], what, &format!("down {} ", NAMES[*other]));
            self.times.down.entry(what).or_default().push(down - began);
        }
        let (mut marks, began) = (self.marks(), Instant::now());
        undoes(self);
        // A program that was started anew has said nothing before.
        marks.iter_mut().zip(&self.nodes).for_each(|(mark, node)| *mark = (*mark).min(node.lines()));
        for (at, other) in downs {
            let up = self.nodes[*at].expect(marks[*at], what, &format!("up {}", NAMES[*other]));
            self.times.up.push(up - began);
        }
        self.all_write(what);
    }

    /// Waits until the writers of all pairs go on.
    fn all_write(&self, what: &str) {
        for node in &self.nodes {
            let before = node.last("counted ");
            let others = NAMES.len() - 1;
            let has_more = || {
                let counted = node.last("counted ");
                counted.iter().filter(|(writer, count)| before.get(*writer) != Some(count)).count() >= others
            };
            until(&format!("{what}: all write"), has_more);
        }
    }

    /// The token of the last holding of the unique name by a program that runs, and its node.
    fn holder(&self) -> Option<(u64, usize)> {
        let last = |(at, node): (usize, &Node)| Some((node.holdings().iter().map(|holding| holding.0).max()?, at));
        self.nodes.iter().enumerate().filter_map(last).max()
    }

    /// Does something to the holder of the unique name until another node has the name, which is longer than a lease.
    fn disturb_holder(&mut self, what: &'static str, does: fn(&mut Nodes, usize), undoes: fn(&mut Nodes, usize)) {
        until("the name is held", || self.holder().is_some());
        let (token, node) = self.holder().expect("it is held");
        let others: Vec<_> = Nodes::pairs(node).map(|(one, other)| (other, one)).collect();
        let does = |all: &mut Nodes| {
            does(all, node);
            until("another node has the name", || all.holder().is_some_and(|(next, _)| next > token));
            all.handovers += 1;
        };
        self.disturb(what, &others, does, |all| undoes(all, node));
    }

    fn weather(&mut self, kind: u32, random: &mut Xoshiro256PlusPlus) {
        let node = random.random_range(0..NAMES.len());
        let around: Vec<_> = Nodes::pairs(node).flat_map(|(one, other)| [(one, other), (other, one)]).collect();
        let others: Vec<_> = Nodes::pairs(node).map(|(one, other)| (other, one)).collect();
        match kind % KINDS {
            0 => {
                self.disturb("a cut", &around, |all| all.place.cut(node, true), |all| all.place.cut(node, false));
            }
            1 => {
                let pair = (node, (node + random.random_range(1..NAMES.len())) % NAMES.len());
                let both = [pair, (pair.1, pair.0)];
                let does = |all: &mut Nodes| all.place.cut_one_way(pair, true);
                self.disturb("a cut in one direction", &both, does, |all| all.place.cut_one_way(pair, false));
            }
            2 => {
                let does = |all: &mut Nodes| all.nodes[node].signal("KILL");
                let undoes = |all: &mut Nodes| {
                    // Its lines are dropped with it.
                    assert_eq!(all.nodes[node].find(0, "wrong: "), None);
                    all.holdings.extend(all.nodes[node].holdings());
                    all.nodes[node] = Node::start(&all.place, node);
                };
                self.disturb("a kill", &others, does, undoes);
            }
            3 => {
                let does = |all: &mut Nodes| all.nodes[node].signal("STOP");
                self.disturb("a stop", &others, does, |all| all.nodes[node].signal("CONT"));
            }
            4 => self.disturb_holder(
                "a long stop",
                |all, node| all.nodes[node].signal("STOP"),
                |all, node| all.nodes[node].signal("CONT"),
            ),
            5 => self.disturb_holder(
                "a long cut",
                |all, node| all.place.cut(node, true),
                |all, node| all.place.cut(node, false),
            ),
            _ => {
                if self.place.slow(node, true) {
                    self.all_write("a slow node");
                    self.place.slow(node, false);
                }
            }
        }
    }

    /// Checks that no step of a holder has begun while another one had the unique name, and that the tokens rise.
    fn check_holdings(&mut self) {
        let marks = self.marks();
        let keeps = |(node, mark): (&Node, &usize)| node.find(*mark, "keeps ").is_some();
        until("the name is held", || self.nodes.iter().zip(&marks).any(keeps));
        let mut holdings = std::mem::take(&mut self.holdings);
        holdings.extend(self.nodes.iter().flat_map(Node::holdings));
        holdings.sort_unstable();
        let in_turn = |pair: &[Holding]| pair[0].0 < pair[1].0 && pair[0].2 < pair[1].1;
        assert!(holdings.windows(2).all(in_turn), "two programs have had the name: {holdings:?}");
        println!("holdings of the unique name, one after the other: {}", holdings.len());
        assert!(self.handovers > 0 && holdings.len() > self.handovers, "{} handovers: {holdings:?}", self.handovers);
    }

    /// Checks that all writers and books agree, and all nodes.
    fn check(&mut self) {
        let started = |node: &Node| node.find(0, "started ").expect("it has started").1["started ".len()..].to_string();
        let living: Vec<_> = self.nodes.iter().map(started).collect();
        // All nodes see the same members, and the same holder of the name.
        let all = NAMES.join(",");
        until("all nodes see the same", || {
            let marks = self.marks();
            self.nodes.iter_mut().for_each(|node| node.tell("look"));
            let mut seen = Vec::new();
            for (node, mark) in self.nodes.iter().zip(marks) {
                node.expect(mark, "it looks", "sees ");
                seen.extend(node.find(mark, "sees ").map(|(_, line)| line));
            }
            seen.iter().all(|line| *line == seen[0] && line.contains(&all) && !line.contains("nobody"))
        });
        self.nodes.iter_mut().for_each(|node| node.tell("rest"));
        until("all writers have ended", || {
            self.nodes.iter().all(|node| {
                let writers = node.last("writer ");
                !writers.is_empty() && node.last("counted ").keys().all(|writer| writers.contains_key(writer))
            })
        });
        let writers: BTreeMap<_, _> = self.nodes.iter().flat_map(|node| node.last("writer ")).collect();
        let accounted = |books: &BTreeMap<String, Vec<u64>>| {
            writers.iter().all(|(writer, numbers)| {
                let [written, lost, ..] = numbers[..] else { return false };
                let is_read = living.iter().any(|there| writer.contains(&format!(">{there}/")));
                let [count, last] = books.get(writer).map_or([0, 0], |book| [book[0], book[1]]);
                count <= last && last <= written && (!is_read || count + lost >= written)
            })
        };
        until("each note is in a book, or a dead letter at its writer", || {
            let marks = self.marks();
            self.nodes.iter_mut().for_each(|node| node.tell("tell"));
            self.nodes.iter().zip(marks).for_each(|(node, mark)| _ = node.expect(mark, "it tells", "book is told"));
            accounted(&self.nodes.iter().flat_map(|node| node.last("book ")).collect())
        });
        for (writer, numbers) in &writers {
            let [_, _, asked, answered, downs] = numbers[..] else { panic!("{writer}: {numbers:?}") };
            assert_eq!(asked, answered, "{writer}: each question is answered once");
            let is_gone = !living.iter().any(|there| writer.contains(&format!(">{there}/")));
            assert!(downs <= 1 && (downs == 1 || !is_gone), "{writer}: it is told once of a down, not {downs} times");
        }
        self.check_holdings();
        for node in &mut self.nodes {
            assert_eq!(node.find(0, "wrong: "), None);
            node.tell("end");
            assert!(wait(&mut node.child).success());
        }
    }
}

#[test]
fn programs_in_namespaces_account_for_all_in_cuts_stops_and_kills() {
    let place = match Place::new() {
        Ok(place) => place,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: the test with network namespaces: {why}");
            return;
        }
    };
    let rounds = if std::env::var_os("PROCESSION_FULL").is_some() { 200 } else { KINDS };
    println!("kinds of weather: {rounds} rounds instead of 200");
    let nodes = (0..NAMES.len()).map(|at| Node::start(&place, at)).collect();
    let mut all = Nodes { place, nodes, times: Times::default(), holdings: Vec::new(), handovers: 0 };
    all.all_write("the start");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(20);
    (0..rounds).for_each(|kind| all.weather(kind, &mut random));
    all.check();
    let shown = |what: &str, times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        let (median, longest) = (times.get(times.len() / 2), times.last());
        println!("{what}: {} times, median {median:?}, longest {longest:?}", times.len());
    };
    all.times.down.iter().for_each(|(what, times)| shown(&format!("down after {what}"), times));
    shown("up after the heal", &all.times.up);
}

//! Several tables, whose shares a test carries.

use std::collections::VecDeque;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// Nodes, each with the table of all, and the shares on their way between them.
struct Net {
    tables: Vec<Table>,
    ways: BTreeMap<(usize, usize), VecDeque<Share>>,
    /// The pairs that are connected, each in both orders.
    up: BTreeSet<(usize, usize)>,
    /// The entries that a subscriber to everything on each node knows of.
    seen: Vec<BTreeSet<Entry>>,
    lost: Vec<Loss>,
}

fn incarnation(at: usize) -> u64 {
    // Not in the order of the nodes.
    (at as u64 * 7 + 3) % 11 + 1
}

fn pid(node: usize, slot: u32) -> Pid {
    Pid::new(node as u32 + 1, slot, 1).unwrap()
}

fn member(node: usize, slot: u32, group: &str, label: &str) -> Entry {
    Entry { name: group.into(), role: Role::Member { label: label.into() }, pid: pid(node, slot) }
}

fn claim(node: usize, slot: u32, name: &str, since: u64) -> Entry {
    Entry { name: name.into(), role: Role::Claimant { since }, pid: pid(node, slot) }
}

impl Net {
    fn new(count: usize) -> Net {
        let tables = (0..count).map(|at| Table::new(incarnation(at))).collect();
        let (ways, up, lost) = Default::default();
        let mut net = Net { tables, ways, up, seen: vec![BTreeSet::new(); count], lost };
        net.heal();
        net
    }

    fn call<R>(&mut self, at: usize, call: impl FnOnce(&mut Table, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let result = call(&mut self.tables[at], &mut effects);
        for (to, share) in effects.shares {
            let is_meant = |other: &usize| match to {
                To::All => true,
                To::One(peer) => incarnation(*other) == peer,
            };
            for other in (0..self.tables.len()).filter(|other| self.up.contains(&(at, *other))).filter(is_meant) {
                self.ways.entry((at, other)).or_default().push_back(share.clone());
            }
        }
        for Change { entry, is_there } in effects.changes {
            let is_news = if is_there { self.seen[at].insert(entry.clone()) } else { self.seen[at].remove(&entry) };
            assert!(is_news, "a change is told once: {entry:?}, {is_there}");
        }
        self.lost.extend(effects.lost);
        result
    }

    fn insert(&mut self, at: usize, entry: Entry) -> bool {
        self.call(at, |table, effects| table.insert(entry, effects)).unwrap()
    }

    fn cut(&mut self, one: usize, other: usize) {
        for (at, peer) in [(one, other), (other, one)] {
            if self.up.remove(&(at, peer)) {
                self.ways.remove(&(at, peer));
                self.call(at, |table, effects| table.down(incarnation(peer), effects));
            }
        }
    }

    fn connect(&mut self, one: usize, other: usize) {
        for (at, peer) in [(one, other), (other, one)] {
            if self.up.insert((at, peer)) {
                self.call(at, |table, effects| table.up(incarnation(peer), effects));
            }
        }
    }

    fn heal(&mut self) {
        for one in 0..self.tables.len() {
            (0..one).for_each(|other| self.connect(one, other));
        }
    }

    /// Carries the first share of a way.
    fn step(&mut self, (from, to): (usize, usize)) -> bool {
        let Some(share) = self.ways.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return false };
        self.call(to, |table, effects| table.receive(incarnation(from), share, effects)).unwrap();
        true
    }

    fn carry(&mut self) {
        while let Some(pair) = self.ways.iter().find(|(_, way)| !way.is_empty()).map(|(pair, _)| *pair) {
            self.step(pair);
        }
    }

    fn compare(&mut self) {
        for (at, peer) in self.up.clone() {
            self.call(at, |table, effects| table.compare(incarnation(peer), effects));
        }
    }

    /// Checks that all tables are equal, and that each subscriber knows what its table has.
    fn check(&self, what: &str) {
        for (at, table) in self.tables.iter().enumerate() {
            assert_eq!(table.digests(), self.tables[0].digests(), "{what}: table {at}");
            let all: BTreeSet<Entry> = table.all().flat_map(|(_, entries)| entries.iter()).collect();
            assert_eq!(self.seen[at], all, "{what}: the subscriber of {at}");
            let mut claimed = BTreeSet::new();
            let is_claim = |entry: &&Entry| matches!(entry.role, Role::Claimant { .. });
            assert!(all.iter().filter(is_claim).all(|entry| claimed.insert(&entry.name)), "{what}: one claim a name");
        }
    }
}

#[test]
fn each_join_and_leave_is_one_share_for_each_node_and_is_seen_there() {
    let mut net = Net::new(3);
    net.carry();
    let entry = member(0, 1, "g", "l");
    assert!(net.insert(0, entry.clone()) && !net.insert(0, entry));
    assert_eq!(net.ways.values().map(VecDeque::len).sum::<usize>(), 2);
    net.carry();
    for table in &net.tables {
        assert_eq!(table.members("g").collect::<Vec<_>>(), [("l", pid(0, 1))]);
        assert_eq!(table.members("h").count(), 0);
    }
    assert!(net.call(0, |table, effects| table.remove(pid(0, 1), |_| true, effects)));
    assert!(!net.tables[0].has(pid(0, 1)));
    net.carry();
    net.check("left");
    assert_eq!(net.tables[2].members("g").count(), 0);
}

#[test]
fn a_large_snapshot_comes_in_small_parts_and_is_seen_at_once() {
    let mut net = Net::new(2);
    net.cut(0, 1);
    for slot in 0..2_000 {
        net.insert(0, member(0, slot, "group", &format!("label {slot}")));
    }
    net.connect(0, 1);
    let parts = net.ways[&(0, 1)].clone();
    assert!(parts.len() > 5);
    for part in &parts {
        assert!(part.entries().iter().map(Entry::cost).sum::<usize>() <= PART);
    }
    for _ in 1..parts.len() {
        net.step((0, 1));
        assert_eq!(net.tables[1].members("group").count(), 0);
    }
    net.step((0, 1));
    assert_eq!(net.tables[1].members("group").count(), 2_000);
    net.check("whole");
    net.cut(0, 1);
    assert_eq!(net.tables[1].members("group").count(), 0);
}

#[test]
fn a_node_without_entries_sends_no_digests() {
    let mut net = Net::new(2);
    net.carry();
    net.compare();
    assert!(net.ways.values().all(VecDeque::is_empty));
    net.insert(0, member(0, 1, "g", "l"));
    net.call(0, |table, effects| table.remove(pid(0, 1), |_| true, effects));
    net.carry();
    net.compare();
    // It had one. So a table may be wrong.
    assert_eq!(net.ways.values().map(VecDeque::len).sum::<usize>(), 1);
}

#[test]
fn a_spoilt_table_is_repaired_by_the_next_digest() {
    let mut net = Net::new(3);
    for node in 0..3 {
        (0..5).for_each(|slot| _ = net.insert(node, member(node, slot, "g", &format!("{node}/{slot}"))));
    }
    net.carry();
    let (dropped, invented) = (member(0, 2, "g", "0/2"), member(0, 9, "g", "nobody"));
    let spoilt = net.tables[1].entries_of(incarnation(0)).unwrap();
    assert!(spoilt.remove(&dropped) && spoilt.insert(&invented).unwrap());
    // Its subscribers have seen that.
    net.seen[1].remove(&dropped);
    net.seen[1].insert(invented);
    net.compare();
    net.carry();
    net.check("repaired");
    assert_eq!(net.tables[1].members("g").count(), 15);
    net.compare();
    let digests = net.ways.values().flatten().filter(|share| matches!(share, Share::Digest(_))).count();
    assert_eq!(digests, net.ways.values().map(VecDeque::len).sum::<usize>(), "no snapshot is sent now");
    net.carry();
    assert!(net.ways.values().all(VecDeque::is_empty));
}

#[test]
fn a_node_that_asks_again_gets_one_snapshot_for_each_digest() {
    let mut net = Net::new(2);
    net.insert(0, member(0, 1, "g", "l"));
    net.carry();
    net.compare();
    for _ in 0..100 {
        net.call(0, |table, effects| table.receive(incarnation(1), Share::Again, effects)).unwrap();
    }
    let is_whole = |share: &&Share| matches!(share, Share::Whole { .. });
    assert_eq!(net.ways[&(0, 1)].iter().filter(is_whole).count(), 1);
}

#[test]
fn the_memory_for_the_entries_of_a_node_is_bounded() {
    let mut net = Net::new(2);
    net.carry();
    let entry = |slot| member(0, slot, &"g".repeat(255), &format!("{slot:0255}"));
    let receive = |net: &mut Net, share| net.call(1, |table, effects| table.receive(incarnation(0), share, effects));
    let changed = |slot| Share::Changed { entry: entry(slot), is_there: true };
    let taken = (0..100_000).take_while(|slot| receive(&mut net, changed(*slot)).is_ok()).count();
    assert!((8_000..8_500).contains(&taken), "{taken}");
    // Short ones with names of their own take far more than their texts.
    let mut short = Net::new(2);
    short.carry();
    let changed = |slot| Share::Changed { entry: member(0, slot, &slot.to_string(), "l"), is_there: true };
    let short = (0..100_000).take_while(|slot| receive(&mut short, changed(*slot)).is_ok()).count();
    assert!((16_000..16_400).contains(&short), "{short}");
    // A snapshot that has no end.
    let whole = |slot| Share::Whole { entries: vec![entry(slot)], is_last: false };
    let arriving = (0..100_000).take_while(|slot| receive(&mut net, whole(*slot)).is_ok()).count();
    assert_eq!(arriving, taken);
    // This node's own are bounded, too.
    let own = (0..100_000).take_while(|slot| net.call(0, |table, effects| table.insert(entry(*slot), effects)).is_ok());
    assert_eq!(own.count(), taken);
}

#[test]
fn bad_names_and_shares_between_parts_are_refused() {
    let mut net = Net::new(2);
    net.carry();
    let mut receive = |share| net.call(1, |table, effects| table.receive(incarnation(0), share, effects)).is_ok();
    let long = "x".repeat(256);
    for (name, label) in [("", "l"), ("g", ""), (&*long, "l"), ("g", &*long)] {
        let entry = member(0, 1, name, label);
        assert!(!receive(Share::Changed { entry: entry.clone(), is_there: true }), "{entry:?}");
        assert!(!receive(Share::Changed { entry, is_there: false }));
    }
    assert!(receive(Share::Whole { entries: Vec::new(), is_last: false }));
    assert!(!receive(Share::Changed { entry: member(0, 1, "g", "l"), is_there: true }));
    assert!(!receive(Share::Digest(Digest::default())));
    assert!(receive(Share::Whole { entries: Vec::new(), is_last: true }));
    assert!(receive(Share::Changed { entry: member(0, 1, "g", "l"), is_there: true }));
}

#[test]
fn keys_are_spread_evenly_and_move_only_with_their_member() {
    let mut net = Net::new(3);
    for label in 0..8 {
        net.insert(label % 3, member(label % 3, label as u32, "g", &format!("shard {label}")));
    }
    net.carry();
    let picks = |net: &Net, at: usize| -> Vec<Option<Pid>> {
        (0..100_000_u64).map(|key| net.tables[at].pick("g", hash_of(&key))).collect()
    };
    let before = picks(&net, 0);
    assert!(before == picks(&net, 1) && before == picks(&net, 2), "all nodes pick the same");
    let mut counts: BTreeMap<Option<Pid>, usize> = BTreeMap::new();
    before.iter().for_each(|picked| *counts.entry(*picked).or_default() += 1);
    assert!(counts.len() == 8 && counts.values().all(|count| *count <= 13_750), "{counts:?}");
    // One goes: its keys move, and no others.
    let gone = pid(2, 5);
    net.call(2, |table, effects| table.remove(gone, |_| true, effects));
    net.carry();
    let without = picks(&net, 0);
    for (before, after) in before.iter().zip(&without) {
        assert_eq!(before == after, *before != Some(gone));
    }
    // It comes back under its label, as another process on another node.
    let again = pid(1, 77);
    net.insert(1, member(1, 77, "g", "shard 5"));
    net.carry();
    for (before, after) in before.iter().zip(&picks(&net, 2)) {
        assert_eq!(*after, if *before == Some(gone) { Some(again) } else { *before });
    }
    assert_eq!(net.tables[0].pick("nobody", 7), None);
}

#[test]
fn members_with_one_label_are_picked_alike_on_all_nodes() {
    let mut net = Net::new(3);
    for node in 0..3 {
        (0..3).for_each(|slot| _ = net.insert(node, member(node, slot, "g", "same")));
    }
    net.carry();
    let picked: BTreeSet<Option<Pid>> = (0..3)
        .flat_map(|at| (0..100).map(move |key| (at, key)))
        .map(|(at, key)| net.tables[at].pick("g", key))
        .collect();
    assert_eq!(picked.len(), 1, "{picked:?}");
}

#[test]
fn after_a_heal_the_earliest_claim_holds_and_the_others_are_told_once() {
    let mut net = Net::new(3);
    net.carry();
    (0..2).for_each(|other| net.cut(2, other));
    net.insert(0, claim(0, 1, "name", 20));
    net.insert(1, claim(1, 1, "name", 20));
    net.insert(2, claim(2, 1, "name", 10));
    net.carry();
    // Of one time: the lower incarnation.
    let first = if incarnation(0) < incarnation(1) { pid(0, 1) } else { pid(1, 1) };
    assert!((0..2).all(|at| net.tables[at].holder("name") == Some(first)));
    assert_eq!((net.lost.len(), net.lost[0].holder), (1, first));
    assert_eq!(net.tables[2].holder("name"), Some(pid(2, 1)));
    net.heal();
    net.carry();
    net.check("healed");
    assert!(net.tables.iter().all(|table| table.holder("name") == Some(pid(2, 1))));
    let lost: BTreeSet<Pid> = net.lost.iter().map(|loss| loss.pid).collect();
    assert_eq!((net.lost.len(), lost), (2, BTreeSet::from([pid(0, 1), pid(1, 1)])));
    // A group of the same name is another thing.
    net.insert(0, member(0, 1, "name", "l"));
    net.carry();
    assert_eq!((net.tables[1].holder("name"), net.tables[1].members("name").count()), (Some(pid(2, 1)), 1));
}

/// Joins, leaves, claims, cuts and heals in any order. Shares that are lost or doubled within a connection would be
/// faults of the nodes: the digests repair them.
#[test]
fn in_any_weather_all_tables_become_equal() {
    for seed in 0..500 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut net = Net::new(4);
        let is_faulty = seed % 2 == 0;
        for now in 0..300 {
            let (at, other) = (random.random_range(0..4), random.random_range(0..4));
            let slot = random.random_range(0..3);
            let name = ["one", "two"][random.random_range(0..2)];
            match random.random_range(0..10) {
                0 | 1 => _ = net.insert(at, member(at, slot, name, ["a", "b"][random.random_range(0..2)])),
                2 if net.tables[at].holder(name).is_none() => {
                    // The clocks differ.
                    _ = net.insert(at, claim(at, slot, name, now + random.random_range(0..5)));
                }
                3 => _ = net.call(at, |table, effects| table.remove(pid(at, slot), |_| true, effects)),
                4 if at != other && random.random_range(0..4) == 0 => net.cut(at, other),
                5 if at != other => net.connect(at, other),
                6 if is_faulty => {
                    let way = net.ways.entry((at, other)).or_default();
                    let is_changed = |share: &Share| matches!(share, Share::Changed { .. });
                    match way.iter().position(is_changed) {
                        Some(place) if random.random_range(0..2) == 0 => _ = way.remove(place),
                        Some(place) => way.insert(place, way[place].clone()),
                        None => {}
                    }
                }
                7 => net.compare(),
                _ => (0..8).for_each(|_| {
                    let pair = (random.random_range(0..4), random.random_range(0..4));
                    net.step(pair);
                }),
            }
        }
        net.heal();
        net.carry();
        if is_faulty {
            net.compare();
            net.carry();
        }
        net.check(&format!("seed {seed}"));
        assert!(net.lost.iter().all(|loss| loss.pid != loss.holder));
    }
}

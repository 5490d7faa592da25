//! Models of the lock of the groups: shares have the order of the changes.

use super::*;

/// Keeps the shares of a connection.
#[derive(Default)]
struct Kept(Mutex<Vec<Share>>);

impl Shares for Kept {
    fn share(&self, share: &Share) {
        lock(&self.0).push(share.clone());
    }
}

fn entry(slot: u32) -> Entry {
    let (role, pid) = (Role::Member { label: "l".into() }, Pid::new(1, slot, 1).unwrap());
    Entry { name: "g".into(), role, pid }
}

fn groups() -> (Arc<Groups<Kept>>, Arc<Kept>) {
    (Arc::new(Groups::new(1, crate::clock::ManualClock::new().clock())), Arc::new(Kept::default()))
}

/// Checks that a node which takes the shares has the entries of this one.
fn check(groups: &Groups<Kept>, kept: &Kept) {
    let (mut there, mut effects) = (Table::new(2), Effects::default());
    there.up(1, &mut effects);
    let shares = std::mem::take(&mut *lock(&kept.0));
    shares.into_iter().for_each(|share| there.receive(1, share, &mut effects).unwrap());
    let here: Vec<_> = lock(&groups.state).table.members("g").map(|(_, pid)| pid).collect();
    assert_eq!(there.members("g").map(|(_, pid)| pid).collect::<Vec<_>>(), here);
}

/// Fails if the shares are sent when the lock is free.
#[test]
fn shares_of_two_threads_have_the_order_of_their_changes() {
    loom::model(|| {
        let (groups, kept) = groups();
        groups.up(2, &kept);
        let other = groups.clone();
        let joins = loom::thread::spawn(move || {
            let joined = other.change(|state, effects, _| state.table.insert(entry(1), effects));
            assert_eq!(joined, Ok(true));
        });
        groups.remove(entry(1).pid, |_| true);
        joins.join().unwrap();
        check(&groups, &kept);
    });
}

/// Fails if the connection is noted before, or after, the snapshot is made.
#[test]
fn a_node_comes_up_while_a_process_joins() {
    loom::model(|| {
        let (groups, kept) = groups();
        let (other, up) = (groups.clone(), kept.clone());
        let connects = loom::thread::spawn(move || other.up(2, &up));
        for slot in 1..3 {
            assert_eq!(groups.change(|state, effects, _| state.table.insert(entry(slot), effects)), Ok(true));
        }
        connects.join().unwrap();
        check(&groups, &kept);
    });
}

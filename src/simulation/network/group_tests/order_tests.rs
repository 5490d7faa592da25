//! The order of joins and leaves, as subscribers on all nodes see it.

use super::*;

/// The label of a member, and whether it has joined. Otherwise it has left.
type Change = (String, bool);

/// A node with four processes, which join a group and leave it.
struct Owner {
    processes: Vec<Handle<Idler>>,
    /// The labels of its members, when subscribers were last compared and now.
    before: BTreeSet<String>,
    now: BTreeSet<String>,
    /// The changes between the two, in order.
    changes: Vec<Change>,
}

/// The connection of a subscriber with a node, since it was last compared.
#[derive(Clone, Copy)]
enum Connection {
    Begins,
    Lasts,
    Breaks,
    Missing,
}

impl Owner {
    /// All its processes are members.
    fn new(member: &Member) -> Result<Owner, BoxError> {
        let processes = (0..4).map(|at| member.join(&at.to_string())).collect::<Result<Vec<_>, _>>()?;
        let now: BTreeSet<String> = (0..4).map(|at| member.label(&at.to_string())).collect();
        Ok(Owner { processes, before: now.clone(), now, changes: Vec::new() })
    }

    /// A process joins, or leaves if it is a member.
    fn change(&mut self, world: &World, member: &Member) -> Result<(), BoxError> {
        let at = world.random(0..4) as usize;
        let (label, process) = (member.label(&at.to_string()), &self.processes[at]);
        let joins = !self.now.remove(&label);
        if joins {
            member.node.join_group("g", &label, process)?;
            self.now.insert(label.clone());
        } else {
            assert!(member.node.leave_group("g", process));
        }
        self.changes.push((label, joins));
        Ok(())
    }

    /// Checks the changes that a subscriber has seen since it was last compared.
    fn check(&self, seen: &[Change], connection: Connection) {
        let all = |labels: &BTreeSet<String>, joins| labels.iter().map(|label| (label.clone(), joins)).collect();
        let in_order = seen.iter().zip(&self.changes).take_while(|(seen, change)| seen == change).count();
        let (first, rest) = match connection {
            Connection::Lasts => (self.changes.len(), BTreeSet::new()),
            Connection::Missing => (0, BTreeSet::new()),
            Connection::Begins => (0, all(&self.now, true)),
            Connection::Breaks => {
                let mut labels = self.before.clone();
                for (label, joins) in &self.changes[..in_order] {
                    _ = if *joins { labels.insert(label.clone()) } else { labels.remove(label) };
                }
                (in_order, all(&labels, false))
            }
        };
        let is_right = in_order >= first && seen.len() == first + rest.len();
        let is_right = is_right && seen[first..].iter().cloned().collect::<BTreeSet<Change>>() == rest;
        assert!(is_right, "{seen:?} of {:?} after {:?}", self.changes, self.before);
    }
}

/// Has processes of all nodes join and leave, several at one moment.
fn storm(world: &World, members: &[Member], owners: &mut [Owner], count: usize) -> Result<(), BoxError> {
    for _ in 0..count {
        for (owner, member) in owners.iter_mut().zip(members) {
            (0..world.random(0..3)).try_for_each(|_| owner.change(world, member))?;
        }
        world.run_for(world.random(0..30) as u32 * MOMENT / 10)?;
    }
    Ok(())
}

/// Compares what the subscribers have seen since the last call with the changes of each node.
fn compare(subscribers: &mut [MemberEvents], owners: &mut [Owner], connection: impl Fn(usize, usize) -> Connection) {
    for (here, subscriber) in subscribers.iter_mut().enumerate() {
        let events = std::iter::from_fn(|| subscriber.recv_timeout(Duration::ZERO).ok().flatten());
        let change = |event| match event {
            MemberEvent::Joined(member) => (member.label, true),
            MemberEvent::Left(member) => (member.label, false),
        };
        let seen: Vec<Change> = events.map(change).collect();
        for (there, owner) in owners.iter().enumerate() {
            let is_its = |change: &&Change| change.0.starts_with(["a/", "b/", "c/"][there]);
            let seen: Vec<Change> = seen.iter().filter(is_its).cloned().collect();
            owner.check(&seen, connection(here, there));
        }
    }
    for owner in owners {
        owner.before.clone_from(&owner.now);
        owner.changes.clear();
    }
}

/// Two nodes are cut from each other again and again, and the third one is not.
///
/// Fails if two changes of one node are swapped, if one is missing or told twice, or if subscribers see other members
/// than those of the node at the beginning of a subscription or a connection.
#[test]
fn subscribers_begin_with_all_members_and_see_changes_in_order() {
    Simulation::new(|world| {
        let members = three(world)?;
        let mut owners = members.iter().map(Owner::new).collect::<Result<Vec<_>, _>>()?;
        world.run_for(SECOND)?;
        let mut subscribers: Vec<_> = members.iter().map(|member| member.node.group_events("g")).collect();
        compare(&mut subscribers, &mut owners, |_, _| Connection::Begins);
        for _ in 0..3 {
            storm(world, &members, &mut owners, 20)?;
            world.network().cut("a", "b");
            for (time, changes, cut) in [
                (3 * SECOND, 10, Connection::Breaks),
                (SECOND, 0, Connection::Missing),
                (5 * SECOND, 10, Connection::Begins),
            ] {
                world.run_for(time)?;
                let connection = |here, there| if here != there && here + there == 1 { cut } else { Connection::Lasts };
                compare(&mut subscribers, &mut owners, connection);
                storm(world, &members, &mut owners, changes)?;
                if changes == 0 {
                    world.network().heal_all();
                }
            }
            world.run_for(SECOND)?;
            compare(&mut subscribers, &mut owners, |_, _| Connection::Lasts);
        }
        Ok(())
    })
    .faults(Faults::none().delay_frames(0.3, Duration::from_millis(300)))
    .seeds(0..50)
    .check();
}

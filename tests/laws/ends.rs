//! The monitor of ends that processes are told of: an end comes before everything that it need not wait for.
//!
//! The end of a process waits behind the letters and the answers of that process, and behind nothing else. So a step
//! takes no other letter and no other answer before it. The process that is told may be ready already when the end
//! arrives. Then its next step is not given the end, and the one after that is.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use procession::{Monitor, Pid};

/// The monitors that a step has made and given up, and the children that it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndYields {
    pub monitors: Vec<Monitor>,
    pub demonitors: Vec<Monitor>,
    /// The tags of children that are run. Their ends wait behind their outputs.
    pub runs: Vec<u64>,
}

/// Something that takes effect before the turn is over.
enum Pending {
    Steps(Pid),
    /// A step of this process has succeeded.
    Yields(Pid, EndYields),
    Ended(Pid),
    /// An end was taken that has arrived in the same turn.
    Taken(Pid, Pid),
}

#[derive(Default)]
pub struct Ends {
    /// Other processes may be stepped within the turn. They may see these, or not.
    pending: Vec<Pending>,
    /// The monitors of each process that have told it nothing yet.
    monitors: HashMap<Pid, BTreeSet<Monitor>>,
    /// The ends that have arrived and were not taken, by the process that is told. `true`: it had a step since.
    arrived: HashMap<Pid, BTreeMap<Pid, (BTreeSet<Monitor>, bool)>>,
    /// The open tags of children, by parent.
    runs: HashMap<Pid, BTreeSet<u64>>,
}

impl Ends {
    /// A step of this process has succeeded.
    pub fn yields(&mut self, me: Pid, yields: &EndYields) {
        self.pending.push(Pending::Yields(me, yields.clone()));
    }

    pub fn ended(&mut self, of: Pid) {
        self.lost(of);
        self.pending.push(Pending::Ended(of));
    }

    /// A step of this process begins.
    pub fn steps(&mut self, me: Pid) {
        self.pending.push(Pending::Steps(me));
    }

    /// Everything that has happened in the turn has its effects. `ended` has the processes that have ended.
    pub fn turn_is_over(&mut self, ended: &HashSet<Pid>) {
        for pending in &self.pending {
            if let Pending::Steps(me) = pending {
                let arrived = self.arrived.get_mut(me).into_iter().flat_map(BTreeMap::values_mut);
                arrived.for_each(|(_, is_due)| *is_due = true);
            }
        }
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Yields(me, yields) => self.settle(me, yields, ended),
                Pending::Ended(of) => self.tell(of),
                Pending::Taken(me, of) => self.takes(me, of),
                Pending::Steps(_) => {}
            }
        }
        self.pending.clear();
    }

    fn settle(&mut self, me: Pid, yields: EndYields, ended: &HashSet<Pid>) {
        for monitor in yields.monitors {
            match ended.contains(&monitor.pid()) {
                true => self.arrives(me, monitor),
                false => _ = self.monitors.entry(me).or_default().insert(monitor),
            }
        }
        for monitor in yields.demonitors {
            self.monitors.entry(me).or_default().remove(&monitor);
            self.forget(me, monitor.pid(), |of| _ = of.remove(&monitor));
        }
        self.runs.entry(me).or_default().extend(yields.runs);
    }

    /// Those who monitor a process are told that it has ended.
    fn tell(&mut self, of: Pid) {
        let watchers: Vec<Pid> = self.monitors.keys().copied().collect();
        for watcher in watchers {
            let monitors = self.monitors.get_mut(&watcher).into_iter();
            let told: Vec<Monitor> = monitors.flat_map(|of_one| of_one.extract_if(.., |one| one.pid() == of)).collect();
            told.into_iter().for_each(|monitor| self.arrives(watcher, monitor));
        }
    }

    fn arrives(&mut self, me: Pid, monitor: Monitor) {
        self.arrived.entry(me).or_default().entry(monitor.pid()).or_default().0.insert(monitor);
    }

    fn forget(&mut self, me: Pid, of: Pid, forget: impl FnOnce(&mut BTreeSet<Monitor>)) {
        let Some(arrived) = self.arrived.get_mut(&me) else { return };
        if let Some((monitors, _)) = arrived.get_mut(&of) {
            forget(monitors);
        }
        arrived.retain(|_, (monitors, _)| !monitors.is_empty());
    }

    /// A process takes the end of another one.
    pub fn takes(&mut self, me: Pid, of: Pid) {
        if self.arrived.get(&me).is_some_and(|arrived| arrived.contains_key(&of)) {
            self.forget(me, of, |monitors| _ = monitors.pop_first());
        } else {
            self.pending.push(Pending::Taken(me, of));
        }
    }

    /// A process takes an answer.
    pub fn answers(&mut self, me: Pid, tag: u64) {
        self.runs.get_mut(&me).into_iter().for_each(|tags| _ = tags.remove(&tag));
    }

    /// The state machine of this process is gone, and nobody is told of its monitors.
    pub fn lost(&mut self, me: Pid) {
        self.monitors.remove(&me);
        self.arrived.remove(&me);
        self.runs.remove(&me);
        self.pending.retain(|pending| !matches!(pending, Pending::Yields(of, _) | Pending::Taken(of, _) if *of == me));
    }

    /// The ends that wait for this process, unless an output may come before them.
    pub fn waiting(&self, me: Pid) -> impl Iterator<Item = Pid> {
        let is_known = self.runs.get(&me).is_none_or(BTreeSet::is_empty);
        let arrived = self.arrived.get(&me).filter(|_| is_known).into_iter().flatten();
        arrived.filter(|(_, (_, is_due))| *is_due).map(|(of, _)| *of)
    }
}

//! The model of monitors and links: what processes have made and were told, and what must follow from it at rest.

use std::collections::{HashMap, HashSet};

use procession::{Exit, Monitor, Pid};

use crate::helpers::Mutex;

/// How a link to a process that has ended, or never was, is told.
const NOBODY: &str = "terminated (no such process)";

/// The records of all processes, of steps that succeeded unless a record says otherwise.
#[derive(Default)]
pub struct Relations {
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    monitors: Vec<(Pid, Monitor)>,
    demonitored: HashSet<(Pid, Monitor)>,
    /// Also of steps that failed. With the exit that was told.
    downs: HashMap<(Pid, Monitor), String>,
    /// By the one that made the link and the other: how often.
    links: HashMap<(Pid, Pid), usize>,
    /// Processes that link children to themselves at birth.
    parents: HashSet<Pid>,
    /// Those of them whose children begin on another node.
    far_parents: HashSet<Pid>,
    unlinked: HashSet<(Pid, Pid)>,
    /// By the one that was told and the other, also of steps that failed: exits that say so, and others.
    nobodies: HashMap<(Pid, Pid), usize>,
    exits: HashMap<(Pid, Pid), Vec<String>>,
    recoveries: HashMap<(Pid, Pid), usize>,
    /// Processes that run children.
    runs: HashSet<Pid>,
    /// Processes that do not trap exits.
    untrapped: HashSet<Pid>,
    /// How often a state machine of a process was replaced, or was to be.
    recovered: HashMap<Pid, usize>,
}

/// Which side of a link is looked at.
struct Ends<'a> {
    me: Pid,
    other: Pid,
    /// How the other has ended.
    exit: &'a str,
}

impl Relations {
    pub fn begins(&self, pid: Pid, traps: bool) {
        if !traps {
            self.notes.lock().unwrap().untrapped.insert(pid);
        }
    }

    pub fn runs(&self, parent: Pid) {
        self.notes.lock().unwrap().runs.insert(parent);
    }

    pub fn recovers(&self, pid: Pid) {
        *self.notes.lock().unwrap().recovered.entry(pid).or_default() += 1;
    }

    pub fn monitors(&self, watcher: Pid, monitor: Monitor) {
        self.notes.lock().unwrap().monitors.push((watcher, monitor));
    }

    pub fn demonitors(&self, watcher: Pid, monitor: Monitor) {
        self.notes.lock().unwrap().demonitored.insert((watcher, monitor));
    }

    pub fn links(&self, one: Pid, other: Pid) {
        *self.notes.lock().unwrap().links.entry((one, other)).or_default() += 1;
    }

    /// A process spawns a child with a link. The link is noted later, or never, if one of them ends too early.
    pub fn links_at_birth(&self, parent: Pid) {
        self.notes.lock().unwrap().parents.insert(parent);
    }

    /// The child of this process begins on another node. By then the process may have ended, and the child is told so.
    pub fn links_at_far_birth(&self, parent: Pid) {
        self.links_at_birth(parent);
        self.notes.lock().unwrap().far_parents.insert(parent);
    }

    pub fn unlinks(&self, one: Pid, other: Pid) {
        self.notes.lock().unwrap().unlinked.insert((one, other));
    }

    pub fn down(&self, watcher: Pid, monitor: Monitor, exit: &Exit) {
        self.notes.lock().unwrap().downs.insert((watcher, monitor), exit.to_string());
    }

    pub fn exit(&self, me: Pid, other: Pid, exit: &Exit) {
        let (text, mut notes) = (exit.to_string(), self.notes.lock().unwrap());
        if text == NOBODY {
            *notes.nobodies.entry((me, other)).or_default() += 1;
        } else {
            notes.exits.entry((me, other)).or_default().push(text);
        }
    }

    pub fn recovery(&self, me: Pid, other: Pid) {
        *self.notes.lock().unwrap().recoveries.entry((me, other)).or_default() += 1;
    }

    /// Checks the rules of any time: nothing is told twice, or of a process that has not ended, or with another exit.
    pub fn check(&self, spawned: &HashSet<Pid>, ended: &HashMap<Pid, String>) -> Result<(), String> {
        let notes = self.notes.lock().unwrap();
        // A child that is refused because the runtime shuts down has never been.
        let is_nobody = |pid: &Pid| ended.contains_key(pid) || !spawned.contains(pid);
        let recovered = |pid| notes.recovered.get(&pid).copied().unwrap_or(0);
        for ((watcher, monitor), told) in &notes.downs {
            let exit = ended.get(&monitor.pid());
            let is_so = if told == NOBODY { is_nobody(&monitor.pid()) } else { exit == Some(told) };
            if !is_so {
                return Err(format!("monitors: {watcher} was told {told} of {}: {exit:?}", monitor.pid()));
            }
        }
        // A child that is run ends with its parent, however that ends.
        let is_run_by = |parent: &Pid, exit: &str| exit.contains(&format!("linked to {parent}, which ended: done"));
        let is_run = |exit: &str| notes.runs.iter().any(|parent| is_run_by(parent, exit));
        let is_wrong = |exit: &str| exit.contains("which ended: done") && !is_run(exit);
        if let Some((pid, exit)) = ended.iter().find(|(_, exit)| is_wrong(exit)) {
            return Err(format!("links: {pid} {exit}"));
        }
        for ((me, other), told) in &notes.exits {
            if !notes.may_be_linked(*me, *other) {
                return Err(format!("links: {me} was told {told:?} of {other}, to which it has no link"));
            }
            let exit = ended.get(other);
            // One that recovers ends the links that its state machine has made, as often as it does so.
            let real = told.iter().filter(|told| Some(*told) == exit).count();
            if told.len() > recovered(*other) + usize::from(real > 0) {
                return Err(format!("links: {me} was told {told:?} of {other}, which ended once: {exit:?}"));
            }
        }
        for ((me, other), times) in &notes.nobodies {
            let links = notes.links.get(&(*me, *other)).copied().unwrap_or(0);
            let births = usize::from(notes.parents.contains(me)) + usize::from(notes.far_parents.contains(other));
            if *times > links + births || !is_nobody(other) {
                return Err(format!("links: {me} was told {times} times that there is no {other}"));
            }
        }
        for ((me, other), times) in &notes.recoveries {
            if *times > recovered(*other) || !notes.links.contains_key(&(*me, *other)) {
                return Err(format!("links: {me} was told of {times} recoveries of {other}"));
            }
        }
        Ok(())
    }

    /// Checks the rule of a runtime at rest: a process that lives and has never failed was told of each end.
    pub fn check_at_rest(&self, alive: &HashSet<Pid>, ended: &HashMap<Pid, String>) -> Result<(), String> {
        let notes = self.notes.lock().unwrap();
        let is_whole = |pid: &Pid| alive.contains(pid) && !notes.recovered.contains_key(pid);
        for one in notes.monitors.iter().filter(|one| is_whole(&one.0) && !notes.demonitored.contains(*one)) {
            if ended.contains_key(&one.1.pid()) && !notes.downs.contains_key(one) {
                return Err(format!("monitors: {} was not told of the end of {}", one.0, one.1.pid()));
            }
        }
        for (one, other) in notes.links.keys() {
            let is_unlinked = |a, b| notes.unlinked.contains(&(a, b)) || notes.unlinked.contains(&(b, a));
            if one == other || is_unlinked(*one, *other) {
                continue;
            }
            for (me, other) in [(*one, *other), (*other, *one)] {
                if let Some(exit) = ended.get(&other).filter(|_| is_whole(&me)) {
                    notes.check_link(&Ends { me, other, exit })?;
                }
            }
        }
        Ok(())
    }
}

impl Notes {
    fn may_be_linked(&self, one: Pid, other: Pid) -> bool {
        let is_parent = self.parents.contains(&one) || self.parents.contains(&other);
        is_parent || self.links.contains_key(&(one, other)) || self.links.contains_key(&(other, one))
    }

    /// `me` lives, and a process has ended to which it is linked.
    fn check_link(&self, ends: &Ends<'_>) -> Result<(), String> {
        let Ends { me, other, exit } = *ends;
        if self.untrapped.contains(&me) {
            if exit != "done" {
                return Err(format!("links: {me} lives on, and {other}, to which it is linked, has ended: {exit}"));
            }
        } else if !self.exits.contains_key(&(me, other)) && !self.nobodies.contains_key(&(me, other)) {
            return Err(format!("links: {me} was not told of the end of {other}: {exit}"));
        }
        Ok(())
    }
}

//! The views: from the answers to titles, texts and tables.

use crate::app::{App, Link, View};
use crate::layout::ColumnKind::{Figures, LosesBeginning, LosesEnd, Words};
use crate::layout::{Block, Column, ColumnKind, Entry, Table, Target};
use crate::model::{Child, Histogram, MOST_LISTED, Overview, Process, Supervisor};
use crate::request::{Filter, TRACE_SECONDS};
use crate::text::{Format, Text};

/// From this width on, tables of processes have all columns.
const WIDE: u16 = 110;

const NO_FIGURES: &str = "The program keeps no figures by type. They are switched on with `RuntimeBuilder::metrics`.";

/// The parts of the view.
pub(crate) fn blocks(app: &App, format: Format) -> Vec<Block> {
    let form = Form { app, format };
    match &app.view {
        View::Overview => form.overview(),
        View::Processes => form.processes(),
        View::Types => form.types(),
        View::Tree => form.tree(),
        View::Waits => form.waits(),
        View::Nodes => form.nodes(),
        View::Process(_) => form.process(),
    }
}

fn columns(described: &[(&'static str, ColumnKind)]) -> Vec<Column> {
    described.iter().map(|(title, kind)| Column { title, kind: *kind }).collect()
}

fn text_of(text: Option<&Text>) -> String {
    text.filter(|text| !text.is_empty()).map_or("-".into(), Text::to_string)
}

fn plain(cells: impl IntoIterator<Item = String>) -> Entry {
    Entry { cells: cells.into_iter().collect(), target: None }
}

fn to_process(pid: &Text, cells: impl IntoIterator<Item = String>) -> Entry {
    let target = (!pid.is_empty()).then(|| Target::Process(pid.clone()));
    Entry { cells: cells.into_iter().collect(), target }
}

/// A state in small letters. Those of a snapshot begin with a capital.
fn state(state: &Text) -> String {
    if state.is_empty() { "-".into() } else { state.as_str().to_lowercase() }
}

/// The growth of a count in a second. `None` if there was no time, or another run of the program began.
fn growth(now: u64, before: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then_some(())?;
    Some(now.checked_sub(before)? as f64 / seconds)
}

struct Form<'a> {
    app: &'a App,
    format: Format,
}

impl Form<'_> {
    fn count(&self, count: u64) -> String {
        self.format.count(count)
    }

    fn nothing_yet(&self) -> Vec<Block> {
        let text = if self.app.link == Link::Saved { "This was not saved." } else { "Waiting for the first answer." };
        vec![Block::Text(text.into())]
    }

    /// A line that says how many more there are than the list has.
    fn left_out(&self, of: u64, listed: usize, what: &str) -> Option<Block> {
        let more = of.checked_sub(listed as u64).filter(|more| *more > 0)?;
        Some(Block::Text(format!("… and {} more {what}", self.count(more))))
    }

    /// Figures with their names, two in a row. Scripts get one.
    fn figures(&self, figures: Vec<(&str, String)>) -> Block {
        let each = if self.format == Format::Scripts { 1 } else { 2 };
        let rows = figures.len().div_ceil(each);
        let entry = |row: usize| {
            let places = (0..each).filter_map(|column| figures.get(column * rows + row));
            plain(places.flat_map(|(name, value)| [(*name).to_string(), format!("{value}   ")]))
        };
        let columns = columns(&[("", Words), ("", LosesEnd), ("", Words), ("", LosesEnd)]);
        Block::Table(Table { columns, entries: (0..rows).map(entry).collect() })
    }

    fn overview(&self) -> Vec<Block> {
        let Some(overview) = &self.app.data.overview else { return self.nothing_yet() };
        let mut blocks = vec![self.figures(self.overview_figures(overview))];
        if overview.mailboxes.is_empty() {
            blocks.push(Block::Text("All mailboxes are empty.".into()));
            return blocks;
        }
        blocks.push(Block::Title("Largest mailboxes".into()));
        let entries = overview.mailboxes.iter().map(|mailbox| {
            let cells = [
                mailbox.pid.to_string(),
                text_of(mailbox.name.as_ref()),
                text_of(Some(&mailbox.type_name)),
                mailbox.state.as_ref().map_or("-".into(), state),
                self.count(mailbox.messages),
            ];
            to_process(&mailbox.pid, cells)
        });
        let columns = columns(&[
            ("PID", Words),
            ("NAME", LosesEnd),
            ("TYPE", LosesBeginning),
            ("STATE", Words),
            ("MESSAGES", Figures),
        ]);
        blocks.push(Block::Table(Table { columns, entries: entries.collect() }));
        blocks
    }

    fn overview_figures(&self, overview: &Overview) -> Vec<(&'static str, String)> {
        let (stats, before) = (&overview.stats, self.app.data.before.as_ref());
        let seconds = before.map_or(0.0, |before| overview.uptime.0 - before.uptime.0);
        // The count and its growth, which only people are shown.
        let growing = |now: u64, before: Option<u64>| {
            let rate = before.and_then(|before| growth(now, before, seconds)).filter(|_| self.format == Format::People);
            rate.map_or_else(|| self.count(now), |rate| format!("{}  {}", self.count(now), self.format.rate(rate)))
        };
        let ended = stats.ended;
        let mut figures = vec![
            ("uptime", self.format.time(overview.uptime.0)),
            ("shutdown", text_of(Some(&overview.shutdown))),
            ("processes", self.count(stats.processes)),
            ("spawned", growing(stats.spawned, before.map(|before| before.stats.spawned))),
            ("done", self.count(ended.done)),
            ("failed", self.count(ended.failed)),
            ("panicked", self.count(ended.panicked)),
            ("terminated", self.count(ended.terminated)),
            ("stuck steps", self.count(overview.stuck)),
            ("messages stepped", growing(stats.messages.stepped, before.map(|before| before.stats.messages.stepped))),
            ("messages waiting", self.count(stats.messages.queued)),
            (
                "dead letters",
                growing(stats.messages.dead_by_reason.0, before.map(|before| before.stats.messages.dead_by_reason.0)),
            ),
            ("steps", growing(stats.steps(), before.map(|before| before.stats.steps()))),
            ("ready", self.count(stats.ready())),
            ("timers", self.count(stats.timers)),
            ("blocking queue", self.count(stats.blocking_queue)),
            ("workers", self.workers(overview)),
        ];
        if let Some(node) = &overview.node {
            figures.push(("node", format!("{} with {} peers", node.name, self.count(node.peers))));
        }
        if let Some(store) = &overview.store {
            figures.push(("parked", self.count(store.parked)));
        }
        figures
    }

    /// The number of workers, and the part of the time since the overview before in which they worked.
    fn workers(&self, overview: &Overview) -> String {
        let count = self.count(overview.stats.workers.len() as u64);
        let before = self.app.data.before.as_ref().and_then(|before| before.stats.worker_time());
        let busy = overview.stats.worker_time().zip(before).map(|(now, before)| (now.0 - before.0, now.1 - before.1));
        match busy {
            Some((busy, all)) if all > 0.0 && self.format == Format::People => {
                format!("{count}  {:.0}% busy", (100.0 * busy / all).clamp(0.0, 100.0))
            }
            _ => count,
        }
    }

    fn processes(&self) -> Vec<Block> {
        let Some(top) = &self.app.data.top else { return self.nothing_yet() };
        let is_wide = self.app.size.0 >= WIDE || self.format == Format::Scripts;
        let mut described = vec![
            ("PID", Words),
            ("NAME", LosesEnd),
            ("TYPE", LosesBeginning),
            ("STATE", Words),
            ("MAILBOX", Figures),
            ("STEPS", Figures),
        ];
        if is_wide {
            described.push(("RESTARTS", Figures));
        }
        described.extend([("AGE", Figures), ("IN STEP", Figures)]);
        let entries = top.processes.iter().map(|process| to_process(&process.pid, self.cells(process, is_wide)));
        let entries = entries.collect();
        let mut blocks = vec![Block::Table(Table { columns: columns(&described), entries })];
        blocks.extend(self.left_out(top.of, top.processes.len(), "match"));
        if top.processes.is_empty() && self.app.filter != Filter::default() {
            blocks.push(Block::Text(format!("No process matches `{}`.", self.app.filter.text())));
        }
        blocks
    }

    fn cells(&self, process: &Process, is_wide: bool) -> Vec<String> {
        let mut cells = vec![
            process.pid.to_string(),
            text_of(process.name.as_ref()),
            text_of(Some(&process.type_name)),
            state(&process.state),
            self.count(process.mailbox),
            self.count(process.steps),
        ];
        if is_wide {
            cells.push(self.count(process.restarts));
        }
        let in_step = process.in_step.map_or("-".into(), |time| self.format.time(time.0));
        cells.extend([self.format.time(process.age.0), in_step]);
        cells
    }

    fn types(&self) -> Vec<Block> {
        let Some(types) = &self.app.data.types else { return self.nothing_yet() };
        if types.types.is_empty() && !self.app.program.metrics {
            return vec![Block::Text(NO_FIGURES.into())];
        }
        let is_wide = self.app.size.0 >= WIDE || self.format == Format::Scripts;
        let mut described = vec![("TYPE", LosesBeginning), ("LIVING", Figures)];
        if is_wide {
            described.extend([("SPAWNED", Figures), ("DONE", Figures), ("RECOVERED", Figures), ("DEAD", Figures)]);
        }
        described.extend([("FAILED", Figures), ("STEPS", Figures), ("MESSAGES", Figures), ("WAITING", Figures)]);
        described.extend([("MEDIAN", Figures), ("99 %", Figures)]);
        if is_wide {
            described.extend([("WAIT 99 %", Figures), ("LONGEST MAILBOX", Words)]);
        }
        let entries = types.types.iter().map(|figures| {
            let ended = figures.ended;
            let mut cells = vec![text_of(Some(&figures.type_name)), self.count(figures.living)];
            if is_wide {
                let more = [figures.spawned, ended.done, figures.recovered, figures.dead];
                cells.extend(more.map(|count| self.count(count)));
            }
            let failed = ended.failed.saturating_add(ended.panicked);
            cells.extend([failed, figures.steps, figures.messages, figures.waiting].map(|count| self.count(count)));
            let time = |part, of: &Histogram| of.quantile(part).map_or("-".into(), |time| self.format.time(time));
            cells.extend([0.5, 0.99].map(|part| time(part, &figures.step_times)));
            if is_wide {
                cells.push(time(0.99, &figures.wait_times));
                let longest = figures.longest.as_ref();
                cells.push(longest.map_or("-".into(), |at| format!("{} {}", at.pid, self.count(at.messages))));
            }
            Entry { cells, target: Some(Target::Type(figures.type_name.clone())) }
        });
        vec![Block::Table(Table { columns: columns(&described), entries: entries.collect() })]
    }

    fn tree(&self) -> Vec<Block> {
        let Some(tree) = &self.app.data.tree else { return self.nothing_yet() };
        if tree.supervisors.is_empty() {
            return vec![Block::Text("There are no supervisors.".into())];
        }
        let mut entries = Vec::new();
        for supervisor in tree.supervisors.iter() {
            self.supervisor(supervisor, &mut entries);
        }
        let described = [
            ("CHILD", LosesEnd),
            ("TYPE", LosesBeginning),
            ("STRATEGY", Words),
            ("STATE", Words),
            ("RESTARTS", Figures),
            ("MAILBOX", Figures),
            ("PID", Words),
        ];
        let mut blocks = vec![Block::Table(Table { columns: columns(&described), entries })];
        blocks.extend(self.left_out(tree.left_out, 0, "processes"));
        blocks
    }

    fn supervisor(&self, supervisor: &Supervisor, entries: &mut Vec<Entry>) {
        let name = supervisor.name.as_ref().filter(|name| !name.is_empty());
        let cells = [
            name.map_or_else(|| supervisor.pid.to_string(), Text::to_string),
            text_of(Some(&supervisor.type_name)),
            text_of(supervisor.strategy.as_ref()),
            state(&supervisor.state),
            self.count(supervisor.restarts),
            self.count(supervisor.mailbox),
            supervisor.pid.to_string(),
        ];
        entries.push(to_process(&supervisor.pid, cells));
        self.children(&supervisor.children, supervisor.no_answer, supervisor.left_out, 1, entries);
    }

    fn children(&self, children: &[Child], no_answer: bool, left_out: u64, depth: usize, entries: &mut Vec<Entry>) {
        let indent = "  ".repeat(depth);
        if no_answer {
            entries.push(plain([format!("{indent}(it does not answer)")]));
        }
        for child in children {
            if entries.len() >= MOST_LISTED {
                return;
            }
            let (process, none) = (child.process.as_ref(), Process::default());
            let pid = &process.unwrap_or(&none).pid;
            let cells = [
                format!("{indent}{}", child.id),
                text_of(process.map(|process| &process.type_name)),
                text_of(child.strategy.as_ref()),
                state(&child.state),
                self.count(child.restarts),
                process.map_or("-".into(), |process| self.count(process.mailbox)),
                text_of(Some(pid)),
            ];
            entries.push(to_process(pid, cells));
            self.children(&child.children, child.no_answer, child.left_out, depth + 1, entries);
        }
        if left_out > 0 {
            entries.push(plain([format!("{indent}… and {} more", self.count(left_out))]));
        }
    }

    fn waits(&self) -> Vec<Block> {
        let (waits, stuck) = (self.app.data.waits.as_ref(), self.app.data.stuck.as_ref());
        if waits.is_none() && stuck.is_none() {
            return self.nothing_yet();
        }
        let mut blocks = Vec::new();
        let stuck = stuck.map(|stuck| &stuck.stuck[..]).unwrap_or_default();
        blocks.push(Block::Title("Stuck steps".into()));
        if stuck.is_empty() {
            blocks.push(Block::Text("No step is stuck, or the program has no watchdog.".into()));
        } else {
            let described =
                [("PID", Words), ("NAME", LosesEnd), ("TYPE", LosesBeginning), ("SINCE", Figures), ("DOING", LosesEnd)];
            let entries = stuck.iter().map(|step| {
                let (name, type_name) = (text_of(step.name.as_ref()), text_of(Some(&step.type_name)));
                let since = self.format.time(step.running_for.0);
                to_process(&step.pid, [step.pid.to_string(), name, type_name, since, step.doing.to_string()])
            });
            blocks.push(Block::Table(Table { columns: columns(&described), entries: entries.collect() }));
        }
        blocks.push(Block::Title("Waits for answers".into()));
        let Some(waits) = waits.filter(|waits| !waits.waits.is_empty()) else {
            blocks.push(Block::Text("Nobody waits for an answer.".into()));
            return blocks;
        };
        let described = [("ASKER", Words), ("ASKED", Words)];
        let entries = waits.waits.iter().map(|wait| {
            // The process that does not answer is of more interest than the asker.
            to_process(&wait.asked, [wait.asker.to_string(), wait.asked.to_string()])
        });
        blocks.push(Block::Table(Table { columns: columns(&described), entries: entries.collect() }));
        blocks.extend(self.left_out(waits.of, waits.waits.len(), "waits"));
        blocks
    }

    fn nodes(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        match &self.app.data.nodes {
            None => blocks.push(Block::Text("The program is no node of a cluster.".into())),
            Some(nodes) => {
                blocks.push(Block::Title(format!("Peers of node {}", text_of(Some(&nodes.name)))));
                let count = |count: Option<u64>| count.map_or("-".into(), |count| self.count(count));
                let entries = nodes.peers.iter().map(|peer| {
                    let (sent, received) = (count(peer.bytes_sent), count(peer.bytes_received));
                    plain([text_of(Some(&peer.name)), state(&peer.state), sent, received])
                });
                let columns = columns(&[
                    ("NAME", LosesEnd),
                    ("STATE", Words),
                    ("BYTES SENT", Figures),
                    ("BYTES RECEIVED", Figures),
                ]);
                blocks.push(Block::Table(Table { columns, entries: entries.collect() }));
            }
        }
        match &self.app.data.parked {
            None => blocks.push(Block::Text("The program has no store.".into())),
            Some(parked) if parked.parked.is_empty() => {
                blocks.push(Block::Text("No durable process is parked.".into()));
            }
            Some(parked) => {
                blocks.push(Block::Title("Parked durable processes".into()));
                let entries = parked.parked.iter().map(|parked| {
                    let cells = [parked.pid.to_string(), text_of(Some(&parked.key)), parked.reason.to_string()];
                    to_process(&parked.pid, cells)
                });
                let columns = columns(&[("PID", Words), ("ID", LosesEnd), ("REASON", LosesEnd)]);
                blocks.push(Block::Table(Table { columns, entries: entries.collect() }));
                blocks.extend(self.left_out(parked.of, parked.parked.len(), "parked processes"));
            }
        }
        blocks
    }

    fn process(&self) -> Vec<Block> {
        let detail = &self.app.data.detail;
        let Some(process) = &detail.process else {
            return match detail.has_ended {
                true => vec![Block::Text("There is no such process any longer.".into())],
                false => self.nothing_yet(),
            };
        };
        let mut blocks = Vec::new();
        if detail.has_ended {
            blocks.push(Block::Text("The process has ended. These are its last figures.".into()));
        }
        let optional = |count: Option<u64>| count.map_or("-".into(), |count| self.count(count));
        // These two may be long. They are shown in full, on several lines if need be.
        blocks.push(Block::Text(format!("name     {}", text_of(process.name.as_ref()))));
        blocks.push(Block::Text(format!("type     {}", text_of(Some(&process.type_name)))));
        blocks.push(self.figures(vec![
            ("pid", process.pid.to_string()),
            ("state", state(&process.state)),
            ("age", self.format.time(process.age.0)),
            ("in step", process.in_step.map_or("-".into(), |time| self.format.time(time.0))),
            ("restarts", self.count(process.restarts)),
            ("mailbox", self.count(process.mailbox)),
            ("steps", self.count(process.steps)),
            ("monitors", optional(process.monitors)),
            ("links", optional(process.links)),
        ]));
        match &detail.description {
            None => {}
            Some(Err(reason)) => blocks.push(Block::Text(format!("No description: {reason}"))),
            Some(Ok(lines)) if lines.0.is_empty() => {
                blocks.push(Block::Text("The process describes itself with no text.".into()));
            }
            Some(Ok(lines)) => {
                blocks.push(Block::Title("Description".into()));
                blocks.extend(lines.0.iter().map(|line| Block::Text(line.to_string())));
            }
        }
        self.trace(&mut blocks);
        blocks
    }

    fn trace(&self, blocks: &mut Vec<Block>) {
        let detail = &self.app.data.detail;
        if !detail.is_traced() && detail.traced.is_none() && detail.events.is_empty() {
            return;
        }
        let state = match detail.traced {
            Some(traced) => {
                let left_out = traced.left_out.saturating_add(detail.forgotten);
                format!("{} events, {} left out", self.count(traced.events), self.count(left_out))
            }
            None if detail.is_traced() => format!("for {TRACE_SECONDS} seconds"),
            None => "broken off".into(),
        };
        blocks.push(Block::Title(format!("Trace: {state}")));
        let entries = detail
            .events
            .iter()
            .map(|event| plain([self.format.time(event.at.0), event.what.to_string(), event.text.to_string()]));
        let columns = columns(&[("AT", Figures), ("EVENT", Words), ("", LosesEnd)]);
        blocks.push(Block::Table(Table { columns, entries: entries.collect() }));
    }
}

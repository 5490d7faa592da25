//! The state of the console: the answers that it has, the requests that wait for theirs, and the place on the screen.
//!
//! Nothing here reads a clock, a socket or a terminal. Times are those since the console began.

use std::collections::VecDeque;
use std::time::Duration;

use crate::input::{Action, Mode};
use crate::layout::{Row, Target, rows};
use crate::model::{Answer, Event, Nodes, Overview, ParkedProcesses, Process, Stuck, Top, Traced, Tree, Types, Waits};
use crate::request::{Filter, MOST, Request, Sort};
use crate::table;
use crate::text::{Format, Lines, Text};

/// The time between two requests for the same.
const EACH: Duration = Duration::from_secs(1);

/// The most events of a trace that are kept.
const MOST_EVENTS: usize = 1_000;

/// The lines of a screen that are not for the view: two above it, and one below.
const FRAME: u16 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Overview,
    Processes,
    Types,
    Tree,
    Waits,
    Nodes,
    Process(Text),
}

impl View {
    pub(crate) const ALL: [View; 6] =
        [View::Overview, View::Processes, View::Types, View::Tree, View::Waits, View::Nodes];

    pub(crate) fn word(&self) -> &'static str {
        match self {
            View::Overview => "overview",
            View::Processes => "processes",
            View::Types => "types",
            View::Tree => "tree",
            View::Waits => "waits",
            View::Nodes => "nodes",
            View::Process(_) => "process",
        }
    }
}

/// The program, as it has described itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) name: Text,
    pub(crate) version: Text,
    pub(crate) process_id: u64,
    pub(crate) started: Text,
    pub(crate) actions: bool,
    pub(crate) metrics: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The program has not answered the hello yet.
    Connecting,
    Up,
    Lost {
        reason: String,
        since: Duration,
    },
    /// There is no program, but a moment that was saved.
    Saved,
}

/// One process in detail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    pub(crate) process: Option<Process>,
    pub(crate) has_ended: bool,
    /// The description, or why there is none.
    pub(crate) description: Option<Result<Lines, Text>>,
    trace: Option<u64>,
    pub(crate) events: VecDeque<Event>,
    /// Events that had no room here.
    pub(crate) forgotten: u64,
    pub(crate) traced: Option<Traced>,
}

impl Detail {
    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }
}

/// The newest answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) overview: Option<Overview>,
    /// The overview before, for figures by second.
    pub(crate) before: Option<Overview>,
    pub(crate) types: Option<Types>,
    pub(crate) top: Option<Top>,
    pub(crate) tree: Option<Tree>,
    pub(crate) waits: Option<Waits>,
    pub(crate) stuck: Option<Stuck>,
    pub(crate) nodes: Option<Nodes>,
    pub(crate) parked: Option<ParkedProcesses>,
    pub(crate) detail: Detail,
}

#[derive(Debug)]
pub(crate) struct App {
    /// The place where the program is looked for, as the user would write it.
    pub(crate) place: String,
    pub(crate) view: View,
    back: View,
    pub(crate) size: (u16, u16),
    pub(crate) link: Link,
    pub(crate) program: Program,
    pub(crate) data: Data,
    pub(crate) sort: Sort,
    pub(crate) filter: Filter,
    pub(crate) mode: Mode,
    pub(crate) notice: String,
    /// Among the rows that lead somewhere. If none does, the first row that is shown.
    pub(crate) selected: usize,
    pub(crate) is_over: bool,
    pub(crate) now: Duration,
    /// Requests that have no answer yet, oldest first.
    asked: VecDeque<(u64, Request)>,
    pub(crate) asked_at: Duration,
    /// Requests that a key has made. They are sent at once.
    ordered: Vec<Request>,
    next_id: u64,
    due: Duration,
    /// Whether the overview that is shown is one of this run of the program.
    is_same_run: bool,
    /// The error that came without a request. The program disconnects after it.
    refusal: Option<String>,
    /// The first request that failed, for scripts.
    pub(crate) failure: Option<String>,
}

impl App {
    pub(crate) fn new(place: String, size: (u16, u16)) -> App {
        App {
            place,
            view: View::Overview,
            back: View::Overview,
            size,
            link: Link::Connecting,
            program: Program::default(),
            data: Data::default(),
            sort: Sort::default(),
            filter: Filter::default(),
            mode: Mode::Normal,
            notice: String::new(),
            selected: 0,
            is_over: false,
            now: Duration::ZERO,
            asked: VecDeque::new(),
            asked_at: Duration::ZERO,
            ordered: Vec::new(),
            next_id: 1,
            due: Duration::ZERO,
            is_same_run: true,
            refusal: None,
            failure: None,
        }
    }

    /// The requests whose answers are on the screen.
    pub(crate) fn wanted(&self) -> Vec<Request> {
        match &self.view {
            View::Overview => vec![Request::Overview],
            View::Processes => {
                let (by, filter) = (self.sort, self.filter.clone());
                // A page more than is shown, so that the next page is there when it is turned.
                let limit = self.selected + 2 * usize::from(self.height());
                vec![Request::Top { by, limit, filter }]
            }
            View::Types => vec![Request::Types],
            View::Tree => vec![Request::Tree],
            View::Waits => vec![Request::Waits, Request::Stuck],
            View::Nodes => vec![Request::Nodes, Request::Parked],
            View::Process(_) if self.data.detail.has_ended => Vec::new(),
            View::Process(pid) => vec![Request::Process(pid.clone())],
        }
    }

    /// Takes the time. Returns the lines that are to be sent now: once a second those of the view, if all requests
    /// before have been answered.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<String> {
        self.now = now;
        if !matches!(self.link, Link::Up | Link::Saved) {
            self.ordered.clear();
            return Vec::new();
        }
        let mut requests = std::mem::take(&mut self.ordered);
        if self.asked.is_empty() && now >= self.due {
            requests.extend(self.wanted());
            self.due = now + EACH;
        }
        requests.into_iter().map(|request| self.ask(request)).collect()
    }

    /// Gives a request a number, and expects its answer.
    pub(crate) fn ask(&mut self, request: Request) -> String {
        let id = self.next_id;
        self.next_id += 1;
        if matches!(request, Request::Trace(_)) {
            let detail = &mut self.data.detail;
            (detail.trace, detail.traced, detail.forgotten) = (Some(id), None, 0);
            detail.events.clear();
        }
        if self.asked.is_empty() {
            self.asked_at = self.now;
        }
        let line = request.line(id);
        self.asked.push_back((id, request));
        line
    }

    /// Whether a request has no answer yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes a line of the program.
    pub(crate) fn line(&mut self, line: &str) {
        let answer: Answer = match serde_json::from_str(line) {
            Ok(answer) => answer,
            Err(error) => {
                // Its request cannot be known. Answers come in order, so it is the oldest.
                let request = self.asked.pop_front();
                let of = request.map_or(String::new(), |(_, request)| format!(" to `{}`", request.word()));
                return self.fails(Text::from(format!("the answer{of} cannot be read: {error}")).to_string());
            }
        };
        if let Some(protocol) = answer.hello {
            return self.greeted(protocol, answer);
        }
        if answer.event.is_some() || answer.traced.is_some() {
            return self.traced(answer);
        }
        let place = self.asked.iter().position(|(id, _)| answer.id == Some(*id));
        let Some(place) = place else {
            if let Some(error) = answer.error {
                self.refusal = Some(format!("{}: {}", error.kind, error.text));
            }
            return;
        };
        // Answers come in order. The requests before will have none.
        let request = self.asked.drain(..=place).next_back();
        self.asked_at = self.now;
        let Some((_, request)) = request else { return };
        match answer.error.clone() {
            Some(error) => self.refused(&request, error.kind.as_str(), &error.text),
            None => self.answered(&request, answer),
        }
    }

    fn greeted(&mut self, protocol: u64, answer: Answer) {
        if protocol == 0 {
            self.refusal = Some("the program knows no version of the protocol that this console knows".into());
        }
        let Answer { program, version, process_id, started, actions, metrics, .. } = answer;
        let before = std::mem::replace(
            &mut self.program,
            Program { name: program, version, process_id, started, actions, metrics },
        );
        let is_first = self.link == Link::Connecting;
        if self.link != Link::Saved {
            self.link = Link::Up;
        }
        self.due = self.now;
        if protocol != 0 {
            self.refusal = None;
        }
        if is_first {
            return;
        }
        self.notice = if before.started == self.program.started {
            "connected again".into()
        } else {
            self.is_same_run = false;
            // The same PID is another process now.
            self.data.detail = Detail::default();
            format!("the program was restarted: process {}, before {}", self.program.process_id, before.process_id)
        };
    }

    fn traced(&mut self, answer: Answer) {
        let detail = &mut self.data.detail;
        if detail.trace.is_none() || detail.trace != answer.id {
            return;
        }
        if let Some(event) = answer.event {
            if detail.events.len() == MOST_EVENTS {
                detail.events.pop_front();
                detail.forgotten += 1;
            }
            detail.events.push_back(event);
        }
        if let Some(traced) = answer.traced {
            (detail.traced, detail.trace) = (Some(traced), None);
        }
    }

    fn refused(&mut self, request: &Request, kind: &str, text: &Text) {
        match (request, kind) {
            (Request::Process(pid), "not_found") if self.is_shown(pid) => self.data.detail.has_ended = true,
            (Request::Describe(pid), _) if self.is_shown(pid) => {
                self.data.detail.description = Some(Err(text.clone()));
            }
            (Request::Nodes | Request::Parked, "not_here") => {}
            (Request::Top { by, filter, .. }, "bad_field") if (*by, filter) == (self.sort, &self.filter) => {
                // The rows that are shown are not those of the filter.
                self.data.top = Some(Top::default());
                self.fails(format!("{}: {text}", request.word()));
            }
            (Request::Trace(_), _) => {
                self.data.detail.trace = None;
                self.fails(format!("trace: {text}"));
            }
            _ => self.fails(format!("{}: {text}", request.word())),
        }
    }

    fn fails(&mut self, text: String) {
        self.failure.get_or_insert_with(|| text.clone());
        self.notice = text;
    }

    fn answered(&mut self, request: &Request, answer: Answer) {
        let data = &mut self.data;
        match request {
            Request::Overview => {
                let before = std::mem::replace(&mut data.overview, answer.overview);
                // The counts of two runs are not compared.
                let is_same_run = std::mem::replace(&mut self.is_same_run, true);
                data.before = before.filter(|_| is_same_run);
            }
            Request::Types => data.types = answer.types,
            Request::Top { by, filter, .. } => {
                // The answer to a question that was changed meanwhile is out of date.
                if (*by, filter) == (self.sort, &self.filter) {
                    self.keep_selected(|app| app.data.top = answer.top);
                }
            }
            Request::Tree => self.keep_selected(|app| app.data.tree = answer.tree),
            Request::Waits => self.keep_selected(|app| app.data.waits = answer.waits),
            Request::Stuck => self.keep_selected(|app| app.data.stuck = answer.stuck),
            Request::Nodes => data.nodes = answer.nodes,
            Request::Parked => self.keep_selected(|app| app.data.parked = answer.parked),
            Request::Process(pid) if self.view == View::Process(pid.clone()) => data.detail.process = answer.process,
            Request::Describe(pid) if self.view == View::Process(pid.clone()) => {
                data.detail.description = answer.describe.map(|description| Ok(description.text));
            }
            Request::Process(_) | Request::Describe(_) | Request::Trace(_) => {}
            Request::Cancel(pid) | Request::Terminate(pid) => {
                let done = answer.cancel.or(answer.terminate).is_none_or(|result| result.done);
                let told = if done { "was told" } else { "was not told" };
                self.notice = format!("{}: {pid} {told}", request.word());
            }
        }
    }

    fn is_shown(&self, pid: &Text) -> bool {
        matches!(&self.view, View::Process(shown) if shown == pid)
    }

    /// The connection has ended.
    pub(crate) fn gone(&mut self, reason: String) {
        let reason = self.refusal.take().unwrap_or(reason);
        let since = match self.link {
            // The first reason and the first time count, however often it is tried again.
            Link::Lost { since, .. } => since,
            _ => self.now,
        };
        self.link = Link::Lost { reason, since };
        self.asked.clear();
        // The reason stands in the place of notices.
        self.notice.clear();
        // Orders are not for the next run of the program: it may have other processes with these PIDs.
        self.ordered.clear();
        self.data.detail.trace = None;
        if matches!(self.mode, Mode::Question(_)) {
            self.mode = Mode::Normal;
        }
    }

    /// The lines that a view has.
    pub(crate) fn height(&self) -> u16 {
        self.size.1.saturating_sub(FRAME)
    }

    /// The rows of the view.
    pub(crate) fn rows(&self) -> Vec<Row> {
        // The mark of the selected row takes two columns.
        rows(&table::blocks(self, Format::People), usize::from(self.size.0).saturating_sub(2), 1)
    }

    /// The places of the rows that can be selected. Empty if the view only moves up and down.
    pub(crate) fn stops(rows: &[Row]) -> Vec<usize> {
        rows.iter().enumerate().filter(|(_, row)| row.target.is_some()).map(|(place, _)| place).collect()
    }

    fn target(&self) -> Option<Target> {
        let rows = self.rows();
        let place = App::stops(&rows).get(self.selected).copied()?;
        rows[place].target.clone()
    }

    /// Changes the rows, and selects what was selected before, if it is still there.
    fn keep_selected(&mut self, change: impl FnOnce(&mut App)) {
        // A selection at the top stays there: it is where the largest is.
        let selected = if self.selected == 0 { None } else { self.target() };
        change(self);
        let Some(target) = selected else { return };
        let mut targets = self.rows().into_iter().filter_map(|row| row.target);
        if let Some(place) = targets.position(|other| other == target) {
            self.selected = place;
        }
    }

    /// Carries out the action of a key.
    pub(crate) fn act(&mut self, action: Action) {
        // A notice is there until the next key.
        self.notice.clear();
        let page = usize::from(self.height().max(2)) - 1;
        match action {
            Action::Quit => self.is_over = true,
            Action::View(number) => {
                if let Some(view) = View::ALL.get(number) {
                    self.show(view.clone());
                }
            }
            Action::Next | Action::Previous => {
                let here = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
                let by = if action == Action::Next { 1 } else { View::ALL.len() - 1 };
                self.show(View::ALL[(here + by) % View::ALL.len()].clone());
            }
            Action::Down => self.moves(self.selected.saturating_add(1)),
            Action::Up => self.moves(self.selected.saturating_sub(1)),
            Action::PageDown => self.moves(self.selected.saturating_add(page)),
            Action::PageUp => self.moves(self.selected.saturating_sub(page)),
            Action::Start => self.moves(0),
            Action::End => self.moves(usize::MAX),
            Action::Open => match self.target() {
                Some(Target::Process(pid)) => self.show(View::Process(pid)),
                Some(Target::Type(name)) => {
                    let filter = Filter { type_name: name.to_string(), ..Filter::default() };
                    self.choose(self.sort, filter);
                    self.show(View::Processes);
                }
                None => {}
            },
            Action::Back => {
                let back = self.back.clone();
                self.show(back);
            }
            Action::Sort(sort) => self.choose(sort, self.filter.clone()),
            Action::Describe | Action::Trace | Action::Ask(_) => self.orders(action),
            Action::StartFilter => {
                self.show(View::Processes);
                self.mode = Mode::Filter(self.filter.text());
            }
            Action::Edit(text) => self.mode = Mode::Filter(text),
            Action::Accept(text) => {
                self.mode = Mode::Normal;
                self.choose(self.sort, Filter::read(&text));
            }
            Action::Yes => {
                if let Mode::Question(request) = std::mem::replace(&mut self.mode, Mode::Normal) {
                    self.ordered.push(request);
                }
            }
            Action::Discard => self.mode = Mode::Normal,
        }
    }

    /// The actions for the process that is shown.
    fn orders(&mut self, action: Action) {
        let View::Process(pid) = self.view.clone() else { return };
        if self.link == Link::Saved {
            self.notice = "this is a moment that was saved: there is no program to ask".into();
            return;
        }
        match action {
            Action::Describe => self.ordered.push(Request::Describe(pid)),
            Action::Trace => self.ordered.push(Request::Trace(pid)),
            Action::Ask(_) if !self.program.actions => {
                self.notice = "the program does not allow actions: its console needs `actions(true)`".into();
            }
            Action::Ask(terminates) => {
                let request = if terminates { Request::Terminate(pid) } else { Request::Cancel(pid) };
                self.mode = Mode::Question(request);
            }
            _ => {}
        }
    }

    pub(crate) fn choose(&mut self, sort: Sort, filter: Filter) {
        (self.sort, self.filter, self.selected, self.due) = (sort, filter, 0, self.now);
    }

    fn moves(&mut self, to: usize) {
        let rows = self.rows();
        let stops = App::stops(&rows).len();
        let last = if stops > 0 { stops - 1 } else { rows.len().saturating_sub(usize::from(self.height())) };
        self.selected = to.min(last);
        let listed = self.data.top.as_ref().map_or(0, |top| top.processes.len());
        let is_cut = self.data.top.as_ref().is_some_and(|top| top.of > listed as u64) && listed < MOST;
        if self.view == View::Processes && is_cut && self.selected + usize::from(self.height()) > listed {
            // More of the list is needed.
            self.due = self.due.min(self.now);
        }
    }

    /// Shows a view, and asks for its figures at once.
    pub(crate) fn show(&mut self, view: View) {
        if view == self.view {
            return;
        }
        if let View::Process(pid) = &view {
            self.data.detail = Detail::default();
            if self.link == Link::Up {
                self.ordered.push(Request::Describe(pid.clone()));
            }
        }
        let before = std::mem::replace(&mut self.view, view);
        if !matches!(before, View::Process(_)) {
            self.back = before;
        }
        (self.selected, self.due) = (0, self.now);
    }
}

#[cfg(test)]
mod tests;

//! A moment that is saved in a file, and opened later.
//!
//! The file has the lines that were said: each request of the console, followed by its answer. So it can be read in the
//! same way as the answers of a program, and keeps fields that this version does not know.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Value, json};

use crate::link::LONGEST_LINE;
use crate::request::{Filter, MOST, PROTOCOL, Request, Sort};

/// The most lines of a file that are read.
const MOST_LINES: usize = 1_000;

/// The requests whose answers make a moment.
pub(crate) fn requests() -> Vec<Request> {
    let tops = Sort::ALL.map(|by| Request::Top { by, limit: MOST, filter: Filter::default() });
    let others = [Request::Types, Request::Tree, Request::Waits, Request::Stuck, Request::Nodes, Request::Parked];
    [Request::Overview].into_iter().chain(tops).chain(others).collect()
}

/// A moment that was opened. It answers in place of the program.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) hello: String,
    /// The answers, by the question and the order that was asked for.
    answers: HashMap<(String, String), Value>,
}

fn key(request: &Value) -> (String, String) {
    let text = |field: &str| request[field].as_str().unwrap_or_default().to_string();
    (text("get"), text("by"))
}

impl Moment {
    pub(crate) fn open(path: &Path) -> Result<Moment, String> {
        let wrong = |text: &str| format!("`{}` is no moment that `--save` has written: {text}", path.display());
        let file = File::open(path).map_err(|error| format!("cannot open `{}`: {error}", path.display()))?;
        let lines = lines(file).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        let mut pairs = Vec::new();
        for pair in lines.chunks(2) {
            let [asked, answered] = pair else { return Err(wrong("its last request has no answer")) };
            let asked: Value = serde_json::from_str(asked).map_err(|error| wrong(&error.to_string()))?;
            let answered: Value = serde_json::from_str(answered).map_err(|error| wrong(&error.to_string()))?;
            pairs.push((asked, answered));
        }
        let mut pairs = pairs.into_iter();
        let Some((_, hello)) = pairs.next().filter(|(asked, _)| asked["hello"] == PROTOCOL) else {
            return Err(wrong("it does not begin with a hello"));
        };
        let answers = pairs.map(|(asked, answered)| (key(&asked), answered)).collect();
        Ok(Moment { hello: hello.to_string(), answers })
    }

    /// The answer to a request of this console.
    pub(crate) fn answer(&self, line: &str) -> String {
        let request: Value = serde_json::from_str(line).unwrap_or_default();
        let mut answer = match request["get"].as_str() {
            Some("process") => self.process(&request["pid"]),
            _ => self.answers.get(&key(&request)).cloned(),
        };
        if let Some(top) = answer.as_mut().and_then(|answer| answer.get_mut("top")) {
            select(top, &request);
        }
        let missing = || json!({"error": {"kind": "no_answer", "text": "this was not saved"}});
        let mut answer = answer.filter(Value::is_object).unwrap_or_else(missing);
        answer["id"] = request["id"].clone();
        answer.to_string()
    }

    /// A process that was asked for, or is in one of the lists.
    fn process(&self, pid: &Value) -> Option<Value> {
        let asked = self.answers.get(&("process".into(), String::new()));
        if let Some(asked) = asked.filter(|answer| answer["process"]["pid"] == *pid) {
            return Some(asked.clone());
        }
        let lists = self.answers.values().filter_map(|answer| answer["top"]["processes"].as_array());
        let process = lists.flatten().find(|process| process["pid"] == *pid)?;
        Some(json!({ "process": process }))
    }
}

/// Keeps those processes of a list that match the filter of a request.
fn select(top: &mut Value, request: &Value) {
    let wanted = |field: &str| request[field].as_str().unwrap_or_default();
    let (name, type_name, state) = (wanted("name"), wanted("type"), wanted("state"));
    if name.is_empty() && type_name.is_empty() && state.is_empty() {
        return;
    }
    let Some(processes) = top["processes"].as_array_mut() else { return };
    processes.retain(|process| {
        let text = |field: &str| process[field].as_str().unwrap_or_default();
        let is_state = state.is_empty() || text("state") == state;
        is_state && text("name").contains(name) && text("type").contains(type_name)
    });
    let matched = processes.len();
    top["of"] = json!(matched);
}

fn lines(file: impl Read) -> io::Result<Vec<String>> {
    let (mut reader, mut lines) = (BufReader::new(file), Vec::new());
    loop {
        let mut line = String::new();
        let read = reader.by_ref().take(LONGEST_LINE as u64 + 1).read_line(&mut line)?;
        if read == 0 {
            return Ok(lines);
        }
        if read > LONGEST_LINE || lines.len() == MOST_LINES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large"));
        }
        lines.push(line);
    }
}

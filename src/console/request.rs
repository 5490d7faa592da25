//! Requests of clients, and their errors.

use std::str::FromStr as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::pid::Pid;
use crate::runtime::{By, Filter, ProcessState};

/// The most processes of an answer.
pub(super) const MOST: usize = 1_000;

/// The processes of a list whose request names no number.
const USUAL: usize = 20;

/// How long a trace takes at most, and without another word.
pub(super) const LONGEST_TRACE: Duration = Duration::from_secs(60);
const USUAL_TRACE: Duration = Duration::from_secs(10);

/// Why a request has no result.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

impl Refused {
    pub(super) fn new(kind: &'static str, text: impl Into<String>) -> Refused {
        Refused { kind, text: text.into() }
    }

    pub(super) fn as_json(&self) -> Value {
        json!({ "kind": self.kind, "text": self.text })
    }
}

/// A question or an action, and its name.
#[derive(Debug)]
pub(super) enum Request {
    Overview,
    Snapshot,
    Types,
    Top { by: By, limit: usize, filter: Filter },
    Process(Pid),
    Tree,
    Waits,
    Stuck,
    Nodes,
    Parked,
    Describe(Pid),
    Trace { pid: Pid, limit: Duration },
    Cancel(Pid),
    Terminate(Pid),
}

/// The object of a line.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, Refused> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refused::new("not_json", "each line is one JSON object")),
        Err(error) => Err(Refused::new("not_json", format!("this is no JSON: {error}"))),
    }
}

/// The id of a request, which its answer repeats.
pub(super) fn id(object: &Map<String, Value>) -> Result<Option<Value>, Refused> {
    match object.get("id") {
        None | Some(Value::Null) => Ok(None),
        Some(id @ (Value::Number(_) | Value::String(_))) => Ok(Some(id.clone())),
        Some(_) => Err(Refused::new("bad_field", "`id` is a number or a text")),
    }
}

/// Reads a request. Also returns its name, which is the field of the result.
pub(super) fn request(object: &Map<String, Value>) -> Result<(String, Request), Refused> {
    let text = |field: &str| match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refused::new("bad_field", format!("`{field}` is a text"))),
    };
    let pid = || {
        let text = text("pid")?.ok_or_else(|| Refused::new("bad_field", "`pid` is missing"))?;
        Pid::from_str(&text).map_err(|error| Refused::new("bad_field", error.to_string()))
    };
    let (get, does) = (text("get")?, text("do")?);
    let (name, does) = match (get, does) {
        (Some(name), None) => (name, false),
        (None, Some(name)) => (name, true),
        _ => return Err(Refused::new("bad_field", "a request has either `get` or `do`")),
    };
    let request = match (&*name, does) {
        ("overview", false) => Request::Overview,
        ("snapshot", false) => Request::Snapshot,
        ("types", false) => Request::Types,
        ("top", false) => {
            let (by, limit) = (by(text("by")?.as_deref())?, limit(object.get("limit"))?);
            let state = text("state")?.as_deref().map(state).transpose()?;
            Request::Top { by, limit, filter: Filter { type_name: text("type")?, name: text("name")?, state } }
        }
        ("process", false) => Request::Process(pid()?),
        ("tree", false) => Request::Tree,
        ("waits", false) => Request::Waits,
        ("stuck", false) => Request::Stuck,
        ("nodes", false) => Request::Nodes,
        ("parked", false) => Request::Parked,
        ("describe", false) => Request::Describe(pid()?),
        ("trace", false) => Request::Trace { pid: pid()?, limit: seconds(object.get("seconds"))? },
        ("cancel", true) => Request::Cancel(pid()?),
        ("terminate", true) => Request::Terminate(pid()?),
        _ => {
            let what = if does { "action" } else { "question" };
            return Err(Refused::new("unknown_request", format!("there is no {what} {name:?}")));
        }
    };
    Ok((name, request))
}

fn by(by: Option<&str>) -> Result<By, Refused> {
    match by {
        None | Some("mailbox") => Ok(By::Mailbox),
        Some("steps") => Ok(By::Steps),
        Some("age") => Ok(By::Age),
        Some("in_step") => Ok(By::InStep),
        Some(_) => Err(Refused::new("bad_field", "`by` is `mailbox`, `steps`, `age` or `in_step`")),
    }
}

fn limit(limit: Option<&Value>) -> Result<usize, Refused> {
    match limit {
        None | Some(Value::Null) => Ok(USUAL),
        Some(limit) => match limit.as_u64() {
            Some(limit) => Ok(usize::try_from(limit).unwrap_or(MOST).min(MOST)),
            None => Err(Refused::new("bad_field", "`limit` is a whole number")),
        },
    }
}

fn seconds(seconds: Option<&Value>) -> Result<Duration, Refused> {
    match seconds {
        None | Some(Value::Null) => Ok(USUAL_TRACE),
        Some(seconds) => match seconds.as_u64() {
            Some(seconds) => Ok(Duration::from_secs(seconds).min(LONGEST_TRACE)),
            None => Err(Refused::new("bad_field", "`seconds` is a whole number")),
        },
    }
}

fn state(state: &str) -> Result<ProcessState, Refused> {
    let states = [ProcessState::Ready, ProcessState::Running, ProcessState::Blocked, ProcessState::Idle];
    let found = states.into_iter().find(|one| one.to_string() == state);
    found.ok_or_else(|| Refused::new("bad_field", "`state` is `ready`, `running`, `blocked` or `idle`"))
}

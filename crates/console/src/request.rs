//! The requests of a client, and their lines.

use serde_json::{Value, json};

use crate::text::Text;

/// The version of the protocol that this program knows.
pub(crate) const PROTOCOL: u64 = 1;

/// The most processes that a program lists in an answer.
pub(crate) const MOST: usize = 1_000;

/// For how long a process is traced, in seconds.
pub(crate) const TRACE_SECONDS: u64 = 10;

/// Which processes come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Mailbox,
    Steps,
    Age,
    InStep,
}

impl Sort {
    pub(crate) const ALL: [Sort; 4] = [Sort::Mailbox, Sort::Steps, Sort::Age, Sort::InStep];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Sort::Mailbox => "mailbox",
            Sort::Steps => "steps",
            Sort::Age => "age",
            Sort::InStep => "in_step",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Sort> {
        Sort::ALL.into_iter().find(|sort| sort.word() == word)
    }
}

/// Which processes are listed. Each part is empty, or must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) state: String,
}

impl Filter {
    /// Reads `cart type:order state:idle`. A part begins with its field, or is a part of the name. A name and a type
    /// may have spaces: words without a field go on with the name or the type before them.
    pub(crate) fn read(text: &str) -> Filter {
        let Filter { mut name, mut type_name, mut state } = Filter::default();
        let mut open = &mut name;
        for word in text.split(' ') {
            match word.split_once(':') {
                Some(("type", part)) => {
                    type_name = part.into();
                    open = &mut type_name;
                }
                Some(("name", part)) => {
                    name = part.into();
                    open = &mut name;
                }
                Some(("state", part)) => {
                    state = part.into();
                    open = &mut name;
                }
                _ => {
                    if !open.is_empty() {
                        open.push(' ');
                    }
                    open.push_str(word);
                }
            }
        }
        let [name, type_name, state] = [name, type_name, state].map(|part| part.trim().to_string());
        Filter { name, type_name, state }
    }

    /// The form that `read` takes.
    pub(crate) fn text(&self) -> String {
        let parts = [("name", &self.name), ("type", &self.type_name), ("state", &self.state)];
        let parts = parts.iter().filter(|(_, part)| !part.is_empty());
        parts.map(|(field, part)| format!("{field}:{part}")).collect::<Vec<_>>().join(" ")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Overview,
    Types,
    Top { by: Sort, limit: usize, filter: Filter },
    Process(Text),
    Tree,
    Waits,
    Stuck,
    Describe(Text),
    Trace(Text),
    Nodes,
    Parked,
    Cancel(Text),
    Terminate(Text),
}

impl Request {
    /// The word of the request, which is also the field of its result.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Request::Overview => "overview",
            Request::Types => "types",
            Request::Top { .. } => "top",
            Request::Process(_) => "process",
            Request::Tree => "tree",
            Request::Waits => "waits",
            Request::Stuck => "stuck",
            Request::Describe(_) => "describe",
            Request::Trace(_) => "trace",
            Request::Nodes => "nodes",
            Request::Parked => "parked",
            Request::Cancel(_) => "cancel",
            Request::Terminate(_) => "terminate",
        }
    }

    /// The line of the request, without its line feed.
    pub(crate) fn line(&self, id: u64) -> String {
        let mut line = json!({ "id": id });
        let verb = if matches!(self, Request::Cancel(_) | Request::Terminate(_)) { "do" } else { "get" };
        line[verb] = json!(self.word());
        match self {
            Request::Top { by, limit, filter } => {
                line["by"] = json!(by.word());
                line["limit"] = json!(limit.min(&MOST));
                let parts = [("name", &filter.name), ("type", &filter.type_name), ("state", &filter.state)];
                for (field, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
                    line[field] = json!(part);
                }
            }
            Request::Process(pid) | Request::Describe(pid) | Request::Cancel(pid) | Request::Terminate(pid) => {
                line["pid"] = json!(pid.as_str());
            }
            Request::Trace(pid) => {
                line["pid"] = json!(pid.as_str());
                line["seconds"] = json!(TRACE_SECONDS);
            }
            _ => {}
        }
        line.to_string()
    }
}

/// The first line of a client.
pub(crate) fn hello(token: Option<&str>) -> String {
    let mut line = json!({ "hello": PROTOCOL });
    if let Some(token) = token {
        line["token"] = Value::from(token);
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_and_written() {
        let filter = Filter::read(" cart type:shop::Order state:idle ");
        assert_eq!((&filter.name[..], &filter.type_name[..], &filter.state[..]), ("cart", "shop::Order", "idle"));
        assert_eq!(filter.text(), "name:cart type:shop::Order state:idle");
        assert_eq!(Filter::read(&filter.text()), filter);
        assert_eq!(Filter::read("  "), Filter::default());
        let spaces = Filter::read("order 7 type:Cart<Item, Price> state:idle of the shop");
        assert_eq!((&spaces.name[..], &spaces.state[..]), ("order 7 of the shop", "idle"));
        assert_eq!(spaces.type_name, "Cart<Item, Price>");
        assert_eq!(spaces.text(), "name:order 7 of the shop type:Cart<Item, Price> state:idle");
        assert_eq!(Filter::read(&spaces.text()), spaces);
        assert_eq!(Filter::read("name: a type: b").text(), "name:a type:b");
    }

    #[test]
    fn a_request_is_a_line_with_the_fields_of_the_protocol() {
        let filter = Filter::read("type:a");
        let line = |request: Request| serde_json::from_str::<Value>(&request.line(7)).unwrap();
        let top = line(Request::Top { by: Sort::InStep, limit: 9_000, filter });
        assert_eq!(top, json!({"id": 7, "get": "top", "by": "in_step", "limit": 1_000, "type": "a"}));
        assert_eq!(line(Request::Trace("<0.1.1>".into()))["seconds"], 10);
        assert_eq!(line(Request::Cancel("<0.1.1>".into())), json!({"id": 7, "do": "cancel", "pid": "<0.1.1>"}));
        assert_eq!(hello(Some("ab")), r#"{"hello":1,"token":"ab"}"#);
        assert_eq!(hello(None), r#"{"hello":1}"#);
    }
}

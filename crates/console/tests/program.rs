//! The program as its users run it: with `--once`, `--save` and `open`, beside a small program that answers.
#![cfg(unix)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::Value;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("procession-console-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(folder.0.join("procession")).unwrap();
        folder
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.0.join("procession").join(format!("{name}.sock"))
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_procession-console"));
        command.env("XDG_RUNTIME_DIR", &self.0).current_dir(&self.0).args(words).output().unwrap()
    }

    /// Runs the program, which must succeed. Returns the text that it prints.
    fn prints(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error with which it ends, and its code.
    fn fails(&self, words: &[&str]) -> (String, Option<i32>) {
        let output = self.run(words);
        assert!(output.stdout.is_empty(), "{words:?}");
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that has failed may leave it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn answers() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shop.jsonl");
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Serves the answers of `tests/shop.jsonl` under a name, until the tests end.
fn shop(folder: &Folder, name: &str) {
    let listener = UnixListener::bind(folder.socket(name)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || serve(&stream));
        }
    });
}

fn key(request: &Value) -> (Value, Value) {
    (request["get"].clone(), request["by"].clone())
}

fn serve(stream: &UnixStream) {
    let lines = answers();
    let answers: HashMap<_, _> = lines.chunks(2).map(|pair| (key(&pair[0]), &pair[1])).collect();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).unwrap();
        let mut answer = answers[&key(&request)].clone();
        if request["hello"].is_null() {
            answer["id"] = request["id"].clone();
        }
        // The client may have gone.
        let mut writer = stream;
        let _ = writeln!(writer, "{answer}");
    }
}

#[test]
fn a_view_is_printed_once_as_a_table() {
    let folder = Folder::new();
    shop(&folder, "shop");
    let table = folder.prints(&["shop", "--once", "processes", "--limit", "2"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["PID", "NAME", "TYPE", "STATE", "MAILBOX", "STEPS", "RESTARTS", "AGE", "IN", "STEP"]);
    let first = [
        "<0.17.1>",
        "courier",
        "shop::delivery::Courier",
        "running",
        "312",
        "90871",
        "2",
        "3724.100000000",
        "2.250000000",
    ];
    assert_eq!((&rows[1][..], rows.len()), (&first[..], 3));
    let overview = folder.prints(&["shop", "--once"]);
    assert!(overview.lines().any(|line| line.split_whitespace().eq(["spawned", "48000"])), "{overview}");
    for view in ["types", "tree", "waits", "nodes"] {
        assert!(folder.prints(&["shop", "--once", view]).contains("north") == (view == "nodes"));
    }
}

#[test]
fn the_only_program_needs_no_name_and_several_are_listed() {
    let folder = Folder::new();
    let (error, code) = folder.fails(&["--once"]);
    assert!(error.contains("no program serves a console in") && code == Some(1), "{error}");
    shop(&folder, "shop");
    // The socket of a program that was killed.
    drop(UnixListener::bind(folder.socket("dead")).unwrap());
    assert!(folder.prints(&["--once"]).contains("uptime"));
    shop(&folder, "bank");
    let (error, _) = folder.fails(&["--once"]);
    assert!(error.contains("2 programs serve a console. Give the name of one:\n  bank\n  shop"), "{error}");
}

#[test]
fn a_moment_is_saved_and_opened_later() {
    let folder = Folder::new();
    shop(&folder, "shop");
    assert_eq!(folder.prints(&["shop", "--save", "monday.jsonl"]), "");
    for view in ["overview", "processes", "types", "tree", "waits", "nodes"] {
        let saved = folder.prints(&["open", "monday.jsonl", "--once", view]);
        assert_eq!(saved, folder.prints(&["shop", "--once", view]), "{view}");
    }
    let sorted = folder.prints(&["open", "monday.jsonl", "--once", "processes", "--sort", "steps", "--limit", "1"]);
    assert!(sorted.lines().nth(1).is_some_and(|line| line.starts_with("<0.9.1>")), "{sorted}");
    let filtered = folder.prints(&["open", "monday.jsonl", "--once", "processes", "--filter", "courier"]);
    assert_eq!(filtered.lines().count(), 2);
    // It has each question with its answer, as JSON lines.
    let text = fs::read_to_string(folder.0.join("monday.jsonl")).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|value| value.is_object())));
    let (error, code) = folder.fails(&["shop", "--save", "monday.jsonl"]);
    assert!(error.contains("cannot write `monday.jsonl`") && code == Some(1), "{error}");
}

#[test]
fn a_file_that_is_no_moment_is_refused() {
    let folder = Folder::new();
    for text in ["", "a\nb\n", "{\"hello\":1}\n", "[]\n[]\n", "{\"hello\":1}\n{\"hello\":1}\n{}\n"] {
        fs::write(folder.0.join("bad"), text).unwrap();
        let (error, code) = folder.fails(&["open", "bad", "--once"]);
        assert!(error.contains("`bad` is no moment that `--save` has written") && code == Some(1), "{text}: {error}");
    }
    let (error, _) = folder.fails(&["open", "none"]);
    assert!(error.contains("cannot open `none`"), "{error}");
}

#[test]
fn errors_name_the_program_and_what_to_do() {
    let folder = Folder::new();
    let (error, code) = folder.fails(&["bakery"]);
    assert!(error.contains("bakery.sock`") && error.contains("has the program ended") && code == Some(1), "{error}");
    let (error, code) = folder.fails(&["--once", "--colour"]);
    assert!(error.contains("procession-console --help") && code == Some(2), "{error}");
    // A program that refuses.
    let listener = UnixListener::bind(folder.socket("busy")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // The client may have gone.
            let _ = writeln!(stream.unwrap(), r#"{{"error":{{"kind":"busy","text":"8 clients are served"}}}}"#);
        }
    });
    let (error, code) = folder.fails(&["busy", "--once"]);
    assert!(error.contains("busy: 8 clients are served") && code == Some(1), "{error}");
}

#[test]
fn without_a_terminal_there_is_no_screen() {
    let folder = Folder::new();
    shop(&folder, "shop");
    let (error, code) = folder.fails(&["shop"]);
    assert!(error.contains("the output is no terminal: for scripts there is `--once`") && code == Some(1), "{error}");
}

#[test]
fn a_port_is_told_the_token_of_the_file() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    fs::write(folder.0.join("token"), "0123abcd\n").unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let error = serde_json::json!({"error": {"kind": "token", "text": line}});
        let _ = writeln!(stream, "{error}");
    });
    let (error, code) = folder.fails(&[&address, "--token-file", "token", "--once"]);
    assert!(error.contains(r#"token: {"hello":1,"token":"0123abcd"}"#) && code == Some(1), "{error}");
    let (error, code) = folder.fails(&[&address, "--token-file", "lost", "--once"]);
    assert!(error.contains("cannot read the token for") && error.contains("`lost`") && code == Some(1), "{error}");
}

#[test]
fn an_answer_without_an_end_is_not_kept_in_memory() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket("endless")).unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        // Until the client has had enough.
        while stream.write_all(&[b'a'; 65_536]).is_ok() {}
    });
    let (error, code) = folder.fails(&["endless", "--once"]);
    assert!(error.contains("sent a line of more than 16777216 bytes") && code == Some(1), "{error}");
}

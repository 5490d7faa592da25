//! The example `chat` as a program: its self test, its clients, and its end.

use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::example::{Ended, Example, Running, line};

static PROGRAM: Example = Example::new("chat");

#[test]
fn each_client_gets_every_line_in_order() {
    let output = PROGRAM.run(&["--selftest", "--clients", "20", "--lines", "50"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("20 clients: each got 1000 lines, all in the same order"), "{text}");
}

#[test]
fn wrong_options_are_explained() {
    PROGRAM.assert_explains(&[&["--clients", "0"], &["--lines", "many"], &["--colour", "red"]]);
    let taken = PROGRAM.run(&["--listen", "192.0.2.1:1"]);
    assert_eq!(taken.status.code(), Some(1), "an address of another machine");
    assert!(String::from_utf8_lossy(&taken.stderr).starts_with("chat: 192.0.2.1:1: "));
}

/// Starts a server on a port that the system chooses.
fn server() -> (Running, String) {
    let mut server = PROGRAM.start(&["--listen", "127.0.0.1:0"]);
    let listening = line(&mut server.out);
    let address = listening.trim_end().strip_prefix("listening on ").expect("it says where it listens");
    (server, address.to_owned())
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &str) -> Client {
        let socket = TcpStream::connect(server).expect("the server listens");
        // So long that only a broken server reaches it.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client(BufReader::new(socket));
        client.expect("* hello: ROOM NAME");
        client
    }

    fn join(server: &str, name: &str) -> Client {
        let mut client = Client::connect(server);
        client.say(&format!("room {name}"));
        client.expect("* welcome");
        client
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(format!("{text}\n").as_bytes()).expect("it is connected");
    }

    #[track_caller]
    fn expect(&mut self, expected: &str) {
        assert_eq!(line(&mut self.0).trim_end_matches('\n'), expected);
    }
}

#[cfg(unix)]
#[test]
fn clients_talk_vanish_and_are_told_of_the_end() {
    let (running, address) = server();
    let mut ann = Client::join(&address, "ann");
    let mut bob = Client::join(&address, "bob");
    ann.expect("* bob has come");
    bob.say("hello\u{7}, ann");
    ann.expect("bob: hello, ann");
    bob.expect("bob: hello, ann");
    // It vanishes without a word.
    drop(bob);
    ann.expect("* bob has left");
    let Ended { code, errors, .. } = running.interrupt();
    assert_eq!(code, Some(0), "{errors}");
    ann.expect("* shutdown");
    ann.expect("");
}

#[cfg(unix)]
#[test]
fn bad_input_is_answered() {
    let (running, address) = server();
    let mut client = Client::connect(&address);
    client.say("hello?");
    client.expect("* say which room you join, and your name: ROOM NAME");
    let _ann = Client::join(&address, "ann");
    client.say("room ann");
    client.expect("* somebody has this name");
    // No byte more than the server reads: else its system resets the connection, and the answer may be lost.
    client.0.get_mut().write_all(&[b'x'; 1024]).unwrap();
    client.expect("* the line is too long");
    client.expect("");
    let mut client = Client::connect(&address);
    client.0.get_mut().write_all(b"\xff\xfe\n").unwrap();
    client.expect("* the line is not UTF-8");
    client.expect("");
    running.interrupt();
}

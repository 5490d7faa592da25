//! The console and a program whose lines are written down.

use serde_json::{Value, json};

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn hello(started: &str) -> String {
    let process_id = if started == "one" { 7 } else { 8 };
    json!({"hello": 1, "program": "shop", "process_id": process_id, "started": started, "actions": true}).to_string()
}

/// A console that is connected, and shows this view.
fn connected(view: View) -> App {
    let mut app = App::new("shop".into(), (80, 24));
    app.line(&hello("one"));
    app.show(view);
    app
}

/// The requests that are sent at a time.
fn asked(app: &mut App, now: Duration) -> Vec<Value> {
    app.tick(now).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Answers a request with this result.
fn answer(app: &mut App, request: &Value, result: Value) {
    let word = request["get"].as_str().or(request["do"].as_str()).unwrap();
    app.line(&json!({"id": request["id"], word: result}).to_string());
}

fn top(of: u64, pids: impl IntoIterator<Item = u64>) -> Value {
    let processes: Vec<Value> =
        pids.into_iter().map(|pid| json!({"pid": format!("<0.{pid}.1>"), "type": "a"})).collect();
    json!({"of": of, "processes": processes})
}

#[test]
fn only_the_view_is_asked_for_and_once_a_second() {
    for (view, words) in [
        (View::Overview, vec!["overview"]),
        (View::Processes, vec!["top"]),
        (View::Types, vec!["types"]),
        (View::Tree, vec!["tree"]),
        (View::Waits, vec!["waits", "stuck"]),
        (View::Nodes, vec!["nodes", "parked"]),
    ] {
        let mut app = connected(view);
        for second in 1..4 {
            let requests = asked(&mut app, at(second));
            assert_eq!(requests.iter().map(|request| &request["get"]).collect::<Vec<_>>(), words);
            requests.iter().for_each(|request| answer(&mut app, request, json!({})));
            assert_eq!(asked(&mut app, at(second) + Duration::from_millis(900)), [Value::Null; 0]);
        }
    }
}

#[test]
fn a_program_that_does_not_answer_is_not_asked_again() {
    let mut app = connected(View::Waits);
    let requests = asked(&mut app, at(1));
    answer(&mut app, &requests[0], json!({}));
    assert_eq!(asked(&mut app, at(60)), [Value::Null; 0]);
    answer(&mut app, &requests[1], json!({}));
    assert_eq!(asked(&mut app, at(60)).len(), 2);
}

#[test]
fn as_many_processes_are_asked_for_as_may_be_shown() {
    let mut app = connected(View::Processes);
    let request = &asked(&mut app, at(1))[0];
    assert_eq!((&request["limit"], &request["by"]), (&json!(42), &json!("mailbox")));
    answer(&mut app, request, top(5_000, 0..42));
    // Beyond the end of the list, more is asked for at once.
    app.act(Action::PageDown);
    assert_eq!(asked(&mut app, at(1)), [Value::Null; 0]);
    app.act(Action::PageDown);
    let request = &asked(&mut app, at(1))[0];
    assert_eq!(request["limit"], 40 + 42);
    answer(&mut app, request, top(5_000, 0..1_000));
    app.act(Action::End);
    assert_eq!(asked(&mut app, at(3))[0]["limit"], 1_000);
}

#[test]
fn an_order_and_a_filter_are_asked_for_at_once() {
    let mut app = connected(View::Processes);
    let old = asked(&mut app, at(1)).remove(0);
    app.act(Action::Sort(Sort::Steps));
    app.act(Action::StartFilter);
    app.act(Action::Accept("till state:idle".into()));
    answer(&mut app, &old, top(1, [1]));
    assert!(app.data.top.is_none());
    let new = &asked(&mut app, at(1))[0];
    assert_eq!((&new["by"], &new["name"], &new["state"]), (&json!("steps"), &json!("till"), &json!("idle")));
    answer(&mut app, new, top(1, [2]));
    assert_eq!(app.data.top.unwrap().processes[0].pid, "<0.2.1>".into());
}

#[test]
fn a_filter_that_is_refused_shows_no_processes_of_another_one() {
    let mut app = connected(View::Processes);
    let request = asked(&mut app, at(1)).remove(0);
    answer(&mut app, &request, top(3, [1, 2, 3]));
    let shows_processes = |app: &App| app.rows().iter().any(|row| row.text.contains("<0.1.1>"));
    assert!(shows_processes(&app));
    app.act(Action::Accept("state:tired".into()));
    let request = asked(&mut app, at(2)).remove(0);
    let error = json!({"kind": "bad_field", "text": "`state` is `idle`"});
    app.line(&json!({"id": request["id"], "error": error}).to_string());
    assert!(!shows_processes(&app) && app.notice.contains("`state` is `idle`"), "{}", app.notice);
}

#[test]
fn the_selection_stays_with_its_process_when_the_order_changes() {
    let mut app = connected(View::Processes);
    let first = asked(&mut app, at(1)).remove(0);
    answer(&mut app, &first, top(4, [1, 2, 3, 4]));
    (0..2).for_each(|_| app.act(Action::Down));
    let second = asked(&mut app, at(2)).remove(0);
    answer(&mut app, &second, top(4, [3, 4, 1, 2]));
    app.act(Action::Open);
    assert_eq!(app.view, View::Process("<0.3.1>".into()));
}

#[test]
fn enter_leads_from_a_type_to_its_processes_and_to_one_of_them() {
    let mut app = connected(View::Types);
    let request = asked(&mut app, at(1)).remove(0);
    answer(&mut app, &request, json!({"types": [{"type_name": "a::A"}, {"type_name": "b::B"}]}));
    app.act(Action::Down);
    app.act(Action::Open);
    let request = asked(&mut app, at(1)).remove(0);
    assert_eq!((&app.view, &request["type"]), (&View::Processes, &json!("b::B")));
    answer(&mut app, &request, top(1, [5]));
    app.act(Action::Open);
    let requests = asked(&mut app, at(1));
    let words: Vec<_> = requests.iter().map(|request| request["get"].as_str().unwrap()).collect();
    assert_eq!((words, &requests[0]["pid"]), (vec!["describe", "process"], &json!("<0.5.1>")));
    app.act(Action::Back);
    assert_eq!(app.view, View::Processes);
}

#[test]
fn a_program_that_was_restarted_is_found_again() {
    let mut app = connected(View::Processes);
    let request = asked(&mut app, at(1)).remove(0);
    answer(&mut app, &request, top(1, [1]));
    asked(&mut app, at(2));
    app.gone("the program has closed the connection".into());
    app.tick(at(3));
    app.gone("cannot connect".into());
    assert_eq!(app.link, Link::Lost { reason: "cannot connect".into(), since: at(2) });
    assert_eq!(app.data.top.as_ref().unwrap().processes.len(), 1);
    app.line(&hello("two"));
    assert_eq!(app.notice, "the program was restarted: process 8, before 7");
    // It goes on where it was, though one request has never been answered.
    let request = asked(&mut app, at(4)).remove(0);
    assert_eq!(request["get"], "top");
    answer(&mut app, &request, top(1, [2]));
    assert_eq!(app.data.top.as_ref().unwrap().processes[0].pid, "<0.2.1>".into());
    // The same program again is not called restarted.
    app.gone("a".into());
    app.line(&hello("two"));
    assert_eq!(app.notice, "connected again");
}

#[test]
fn counts_of_two_runs_are_not_compared() {
    let mut app = connected(View::Overview);
    for second in [1, 2] {
        let request = asked(&mut app, at(second)).remove(0);
        answer(&mut app, &request, json!({"uptime": second, "stats": {"spawned": 10 * second}}));
    }
    assert!(app.data.before.is_some());
    app.gone("a".into());
    app.line(&hello("two"));
    // Until the first answer of the new run, the last one of the old run is shown.
    assert!(app.data.overview.is_some());
    for (second, is_compared) in [(3, false), (4, true)] {
        let request = asked(&mut app, at(second)).remove(0);
        answer(&mut app, &request, json!({"uptime": second, "stats": {"spawned": 1_000}}));
        assert_eq!(app.data.before.is_some(), is_compared);
    }
}

#[test]
fn an_action_is_sent_after_the_answer_yes_only() {
    let mut app = connected(View::Process("<0.1.1>".into()));
    let requests = asked(&mut app, at(1));
    requests.iter().for_each(|request| answer(&mut app, request, json!({"pid": "<0.1.1>"})));
    for (terminates, word) in [(true, "terminate"), (false, "cancel")] {
        app.act(Action::Ask(terminates));
        assert!(matches!(app.mode, Mode::Question(_)));
        app.act(Action::Discard);
        assert_eq!(asked(&mut app, at(1)), [Value::Null; 0]);
        app.act(Action::Ask(terminates));
        app.act(Action::Yes);
        let request = asked(&mut app, at(1)).remove(0);
        assert_eq!((&request["do"], &request["pid"]), (&json!(word), &json!("<0.1.1>")));
        answer(&mut app, &request, json!({"done": true}));
        assert_eq!(app.notice, format!("{word}: <0.1.1> was told"));
    }
}

#[test]
fn an_action_does_not_outlive_the_run_of_its_program() {
    let mut app = connected(View::Process("<0.1.1>".into()));
    asked(&mut app, at(1));
    app.act(Action::Ask(true));
    app.gone("a".into());
    app.line(&hello("two"));
    app.act(Action::Yes);
    assert!(asked(&mut app, at(2)).iter().all(|request| request["do"].is_null()));
    // Nor does one that was confirmed, but not sent yet.
    app.act(Action::Ask(true));
    app.act(Action::Yes);
    app.gone("a".into());
    app.line(&hello("three"));
    assert!(asked(&mut app, at(3)).iter().all(|request| request["do"].is_null()));
}

#[test]
fn without_the_program_s_leave_no_action_is_asked_for() {
    let mut app = connected(View::Process("<0.1.1>".into()));
    app.program.actions = false;
    app.act(Action::Ask(true));
    assert_eq!(app.mode, Mode::Normal);
    assert!(app.notice.contains("does not allow actions"));
}

#[test]
fn a_process_that_has_ended_keeps_its_last_figures() {
    let mut app = connected(View::Process("<0.1.1>".into()));
    let requests = asked(&mut app, at(1));
    answer(&mut app, &requests[1], json!({"pid": "<0.1.1>", "steps": 5}));
    let request = asked(&mut app, at(2)).remove(0);
    app.line(&json!({"id": request["id"], "error": {"kind": "not_found", "text": "it has ended"}}).to_string());
    assert_eq!((app.data.detail.has_ended, app.data.detail.process.as_ref().unwrap().steps), (true, 5));
    assert_eq!(asked(&mut app, at(9)), [Value::Null; 0]);
}

#[test]
fn a_trace_keeps_the_newest_events_and_counts_the_others() {
    let mut app = connected(View::Process("<0.1.1>".into()));
    app.act(Action::Trace);
    let request = asked(&mut app, at(1)).into_iter().find(|request| request["get"] == "trace").unwrap();
    answer(&mut app, &request, json!({"for": 10}));
    for number in 0..MOST_EVENTS + 20 {
        app.line(&json!({"id": request["id"], "event": {"at": number, "what": "step", "text": ""}}).to_string());
    }
    let others = json!({"id": 999, "event": {"at": 0, "what": "step"}});
    app.line(&others.to_string());
    assert_eq!((app.data.detail.events.len(), app.data.detail.forgotten), (MOST_EVENTS, 20));
    assert_eq!(app.data.detail.events.front().unwrap().at.0, 20.0);
    app.line(&json!({"id": request["id"], "traced": {"events": 1_020, "left_out": 3}}).to_string());
    assert!(!app.data.detail.is_traced() && app.data.detail.traced.is_some());
}

#[test]
fn an_older_program_may_lack_fields_and_requests() {
    let mut app = App::new("shop".into(), (80, 24));
    app.line(r#"{"hello":1}"#);
    for view in View::ALL {
        app.show(view.clone());
        for request in asked(&mut app, at(1)) {
            answer(&mut app, &request, json!({}));
        }
        assert!(!app.rows().is_empty() && app.notice.is_empty(), "{view:?}: {}", app.notice);
    }
    let request = asked(&mut app, at(5)).remove(0);
    let error = json!({"kind": "unknown_request", "text": "there is no request `nodes`"});
    app.line(&json!({"id": request["id"], "error": error}).to_string());
    assert_eq!(app.notice, "nodes: there is no request `nodes`");
    assert!(app.link == Link::Up);
}

#[test]
fn a_newer_program_may_add_fields_and_words() {
    let mut app = connected(View::Processes);
    let request = asked(&mut app, at(1)).remove(0);
    let process =
        json!({"pid": "<0.1.1>", "type": "a", "state": "Dreaming", "mood": [1, {"a": null}], "age": {"secs": 2}});
    answer(&mut app, &request, json!({"of": 1, "processes": [process], "weather": "fine"}));
    let row = &app.rows()[1].text;
    assert!(row.contains("dreaming") && row.contains("2.0s"), "{row}");
    app.line(&json!({"id": request["id"], "prophecy": {}}).to_string());
    // A null is as good as nothing.
    app.show(View::Nodes);
    let requests = asked(&mut app, at(2));
    answer(&mut app, &requests[0], json!({"name": null, "peers": [{"name": "east", "bytes_sent": null}]}));
    answer(&mut app, &requests[1], json!({"of": 1, "parked": [{"pid": "<0.1.1>", "key": null, "reason": null}]}));
    assert!(app.rows().iter().any(|row| row.text.starts_with("<0.1.1> -")));
    app.line(r#"{"news":[]}"#);
    assert!(app.notice.is_empty() && app.link == Link::Up);
}

#[test]
fn lines_that_are_no_answers_are_reported_and_the_next_is_read() {
    let nested = format!("{{\"a\":{}}}", "[".repeat(100_000));
    for line in ["", "null", "7", "{", "\u{1b}[2J", r#"{"id":-1}"#, r#"{"top":{"of":"many"}}"#, &nested] {
        let mut app = connected(View::Processes);
        asked(&mut app, at(1));
        app.line(line);
        assert!(app.notice.contains("the answer to `top` cannot be read"), "{line:.20}: {}", app.notice);
        let request = asked(&mut app, at(3)).remove(0);
        answer(&mut app, &request, top(1, [1]));
        assert_eq!(app.data.top.unwrap().of, 1);
    }
}

#[test]
fn numbers_out_of_all_bounds_are_shown() {
    let most = u64::MAX;
    let worker =
        json!({"steps": most, "queue": most, "busy": {"secs": most, "nanos": 4_000_000_000_u64}, "asleep": -1e300});
    let stats = json!({"processes": most, "spawned": most, "global_queue": most, "steps_elsewhere": most,
        "messages": {"dead_by_reason": {"a": most, "b": most}}, "workers": [worker, worker]});
    let mut app = connected(View::Overview);
    for (second, uptime) in [(1, 1e308), (2, -1e308)] {
        let request = asked(&mut app, at(second)).remove(0);
        answer(&mut app, &request, json!({"uptime": uptime, "stats": stats, "stuck": most}));
        assert!(app.rows().len() > 8);
    }
    app.show(View::Types);
    let request = asked(&mut app, at(3)).remove(0);
    let buckets = json!([{"to": {"secs": most}, "count": most}, {"to": 1e308, "count": most}]);
    let failed = json!({"failed": most, "panicked": most});
    let figures = json!({"type_name": "a", "ended": failed, "step_times": {"buckets": buckets}});
    answer(&mut app, &request, json!({"types": [figures]}));
    assert_eq!(app.rows().len(), 2);
}

#[test]
fn a_refusal_is_the_reason_of_the_end_of_the_connection() {
    let mut app = App::new("shop".into(), (80, 24));
    app.line(r#"{"error":{"kind":"busy","text":"8 clients are served"}}"#);
    app.gone("the program has closed the connection".into());
    assert_eq!(app.link, Link::Lost { reason: "busy: 8 clients are served".into(), since: at(0) });
}

//! The checked-in screens. `PROCESSION_CONSOLE_SCREENS=write cargo test -p procession-console` writes them anew.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::moment::Moment;
use crate::text::Text;

/// A console that is connected to the program of `tests/shop.jsonl`.
struct Shop {
    app: App,
    moment: Moment,
    now: Duration,
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

impl Shop {
    fn new(size: (u16, u16)) -> Shop {
        let moment = Moment::open(&file("shop.jsonl")).unwrap();
        let mut app = App::new("/run/user/1000/procession/shop.sock".into(), size);
        app.line(&moment.hello);
        let mut shop = Shop { app, moment, now: Duration::ZERO };
        shop.second();
        shop
    }

    /// Lets a second pass, and answers all requests.
    fn second(&mut self) -> Vec<String> {
        self.now += Duration::from_secs(1);
        let asked = self.app.tick(self.now);
        asked.iter().for_each(|line| self.app.line(&self.moment.answer(line)));
        asked
    }

    fn press(&mut self, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                'v' => KeyCode::PageDown,
                other => KeyCode::Char(other),
            };
            let action = crate::input::action(&self.app.mode, KeyEvent::new(code, KeyModifiers::NONE));
            action.into_iter().for_each(|action| self.app.act(action));
        }
        self.second();
    }

    fn screen(&self) -> String {
        screen(&self.app)
    }
}

/// The lines of the screen, without the spaces at their ends.
fn screen(app: &App) -> String {
    let area = Rect::new(0, 0, app.size.0, app.size.1);
    let mut buffer = Buffer::empty(area);
    draw(app, area, &mut buffer);
    let line = |y| {
        let (mut line, mut x) = (String::new(), 0);
        while x < area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character takes the cell after it, too.
            x += width_of(symbol).max(1) as u16;
        }
        line.trim_end().to_string() + "\n"
    };
    (0..area.height).map(line).collect()
}

/// Compares the screens of both sizes with the checked-in ones.
fn check(name: &str, prepare: impl Fn(&mut Shop)) {
    for (width, height) in [(80, 24), (200, 50)] {
        let mut shop = Shop::new((width, height));
        prepare(&mut shop);
        let (shown, path) = (shop.screen(), file(&format!("screens/{name}-{width}x{height}.txt")));
        if std::env::var_os("PROCESSION_CONSOLE_SCREENS").is_some_and(|value| value == "write") {
            std::fs::write(&path, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shown == expected, "{} differs. It is now:\n{shown}", path.display());
        assert!(shown.lines().all(|line| width_of(line) <= usize::from(width)));
    }
}

#[test]
fn the_overview_has_its_screen() {
    check("overview", |shop| {
        // The same a second later, for the growth of the counts.
        let later = shop.moment.answer(r#"{"id":2,"get":"overview","by":"later"}"#);
        shop.app.tick(Duration::from_secs(2));
        shop.app.line(&later);
    });
}

#[test]
fn the_processes_have_their_screen() {
    check("processes", |shop| shop.press("2"));
}

#[test]
fn processes_that_are_sorted_and_filtered_have_their_screen() {
    check("filtered", |shop| {
        shop.press("/type:Shelf");
        shop.press("\n");
        shop.press("s");
        shop.press("jjvk");
    });
}

#[test]
fn a_filter_that_is_written_has_its_screen() {
    check("filter", |shop| shop.press("/name:till st"));
}

#[test]
fn the_types_have_their_screen() {
    check("types", |shop| shop.press("3"));
}

#[test]
fn the_tree_has_its_screen() {
    check("tree", |shop| shop.press("4jj"));
}

#[test]
fn waits_and_stuck_steps_have_their_screen() {
    check("waits", |shop| shop.press("5j"));
}

#[test]
fn nodes_and_the_store_have_their_screen() {
    check("nodes", |shop| shop.press("6"));
}

#[test]
fn a_process_in_detail_with_its_trace_has_its_screen() {
    check("process", |shop| {
        shop.press("2");
        shop.press("\n");
        shop.app.act(crate::input::Action::Trace);
        let asked = shop.app.tick(shop.now);
        let trace = asked.iter().find(|line| line.contains("trace")).unwrap();
        shop.app.line(&shop.moment.answer(trace));
        let id: serde_json::Value = serde_json::from_str(trace).unwrap();
        let id = &id["id"];
        let (from, took) = ("shop::delivery::Parcel of <0.9.1>", "took 1 message, and rests");
        for (at, what, text) in [(0.5, "message", from), (0.5004, "step", took), (1.25, "signal", "at a cancel event")]
        {
            let event = serde_json::json!({"id": id, "event": {"at": at, "what": what, "text": text}});
            shop.app.line(&event.to_string());
        }
        shop.app.line(&format!(r#"{{"id":{id},"traced":{{"events":3,"left_out":40}}}}"#));
    });
}

#[test]
fn a_question_has_its_screen() {
    check("question", |shop| {
        shop.press("2");
        shop.press("\n");
        shop.press("x");
    });
}

#[test]
fn a_program_that_has_gone_has_its_screen() {
    check("lost", |shop| {
        shop.press("2");
        shop.app.gone("the program has closed the connection".into());
        shop.app.tick(shop.now + Duration::from_secs(75));
    });
}

#[test]
fn a_saved_moment_has_its_screen() {
    check("saved", |shop| {
        shop.app.link = Link::Saved;
        shop.app.place = "monday.jsonl".into();
        shop.press("2");
    });
}

#[test]
fn the_guide_shows_checked_in_screens() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/observability.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for name in ["overview", "tree", "process"] {
        let screen = std::fs::read_to_string(file(&format!("screens/{name}-80x24.txt"))).unwrap();
        let (view, keys) = screen.trim_end().rsplit_once('\n').unwrap();
        // The guide has one empty line above the keys.
        let shown = format!("```text\n{}\n\n{keys}\n```", view.trim_end());
        assert!(guide.contains(&shown), "docs/guide/observability.md shows another screen of `{name}`");
    }
}

#[test]
fn every_view_is_drawn_at_every_small_size() {
    for (width, height) in (0..6).flat_map(|width| (0..6).map(move |height| (width * 7, height))) {
        for key in ["1", "2", "3", "4", "5", "6", "2\n"] {
            let mut shop = Shop::new((width, height));
            key.chars().for_each(|key| shop.press(&key.to_string()));
            shop.press("j");
            shop.screen();
        }
    }
}

#[test]
fn the_selected_row_is_always_on_the_screen() {
    let mut shop = Shop::new((80, 24));
    shop.press("2");
    for keys in ["v", "v", "j", "k", "G", "k", "g"] {
        shop.press(keys);
        let marked = shop.screen().lines().filter(|line| line.starts_with(MARK)).count();
        assert_eq!(marked, 1, "{keys}");
    }
}

/// All that a hostile program can send as a text is in the answers.
#[test]
fn no_control_character_of_a_program_reaches_the_terminal() {
    let hostile = "\u{1b}[2J\u{9b}1m\r\n\t\u{7}\u{202e}\u{200b}x";
    let text = std::fs::read_to_string(file("shop.jsonl")).unwrap();
    let mut shop = Shop::new((200, 50));
    let answers: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let poisoned: Vec<String> = answers.into_iter().map(|answer| poison(answer, hostile).to_string()).collect();
    shop.app.line(&poisoned[1]);
    for key in ["1", "2", "3", "4", "5", "6", "\n"] {
        shop.press(key);
        for answer in &poisoned {
            // Each answer is offered for each request.
            let asked = shop.app.tick(shop.now + Duration::from_secs(1));
            let ids =
                asked.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64());
            for id in ids {
                let mut answer: serde_json::Value = serde_json::from_str(answer).unwrap();
                answer["id"] = id.into();
                shop.app.line(&answer.to_string());
            }
            let screen = shop.screen();
            assert!(
                !screen.contains(|c: char| c != '\n' && Text::from(c.to_string()).as_str() != c.to_string()),
                "{key}"
            );
        }
    }
    assert!(shop.screen().contains("x"));
}

/// Puts a text at the end of each text.
fn poison(value: serde_json::Value, hostile: &str) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(text + hostile),
        Value::Array(values) => values.into_iter().map(|value| poison(value, hostile)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, poison(value, hostile))).collect(),
        other => other,
    }
}

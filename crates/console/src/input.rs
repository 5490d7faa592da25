//! Keys, and the actions that they mean.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::request::{Request, Sort};

/// The longest filter, in characters.
const LONGEST_FILTER: usize = 200;

/// The meaning of keys at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Normal,
    /// A filter is being written.
    Filter(String),
    /// The request is sent if the answer is yes.
    Question(Request),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    View(usize),
    Next,
    Previous,
    Up,
    Down,
    PageUp,
    PageDown,
    Start,
    End,
    Open,
    Back,
    Sort(Sort),
    Describe,
    Trace,
    /// Asks whether the process is to be terminated, or cancelled if false.
    Ask(bool),
    StartFilter,
    Edit(String),
    Accept(String),
    Discard,
    Yes,
}

pub(crate) fn action(mode: &Mode, key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match (mode, key.code) {
        (_, KeyCode::Char('c')) if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Action::Quit),
        (Mode::Filter(_), KeyCode::Char('u')) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Action::Edit(String::new()))
        }
        (Mode::Filter(text), code) => edit(text, code, is_plain),
        (Mode::Question(_), KeyCode::Char('y')) if is_plain => Some(Action::Yes),
        (Mode::Question(_), _) => Some(Action::Discard),
        (Mode::Normal, KeyCode::Char(c)) => is_plain.then(|| letter(c)).flatten(),
        (Mode::Normal, KeyCode::Tab) => Some(Action::Next),
        (Mode::Normal, KeyCode::BackTab) => Some(Action::Previous),
        (Mode::Normal, KeyCode::Up) => Some(Action::Up),
        (Mode::Normal, KeyCode::Down) => Some(Action::Down),
        (Mode::Normal, KeyCode::PageUp) => Some(Action::PageUp),
        (Mode::Normal, KeyCode::PageDown) => Some(Action::PageDown),
        (Mode::Normal, KeyCode::Home) => Some(Action::Start),
        (Mode::Normal, KeyCode::End) => Some(Action::End),
        (Mode::Normal, KeyCode::Enter) => Some(Action::Open),
        (Mode::Normal, KeyCode::Esc | KeyCode::Backspace) => Some(Action::Back),
        _ => None,
    }
}

fn letter(c: char) -> Option<Action> {
    Some(match c {
        'q' => Action::Quit,
        '1'..='6' => Action::View(c as usize - '1' as usize),
        'j' => Action::Down,
        'k' => Action::Up,
        'g' => Action::Start,
        'G' => Action::End,
        'm' => Action::Sort(Sort::Mailbox),
        's' => Action::Sort(Sort::Steps),
        'a' => Action::Sort(Sort::Age),
        'i' => Action::Sort(Sort::InStep),
        'd' => Action::Describe,
        't' => Action::Trace,
        'c' => Action::Ask(false),
        'x' => Action::Ask(true),
        '/' => Action::StartFilter,
        _ => return None,
    })
}

fn edit(text: &str, code: KeyCode, is_plain: bool) -> Option<Action> {
    match code {
        KeyCode::Enter => Some(Action::Accept(text.into())),
        KeyCode::Esc => Some(Action::Discard),
        KeyCode::Backspace => {
            let mut shorter = text.to_string();
            shorter.pop();
            Some(Action::Edit(shorter))
        }
        KeyCode::Char(c) if is_plain && text.chars().count() < LONGEST_FILTER => {
            Some(Action::Edit(format!("{text}{c}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(mode: &Mode, code: KeyCode) -> Option<Action> {
        action(mode, KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_mean_actions() {
        let normal = |code| pressed(&Mode::Normal, code);
        assert_eq!(normal(KeyCode::Char('q')), Some(Action::Quit));
        assert_eq!(normal(KeyCode::Char('3')), Some(Action::View(2)));
        assert_eq!(normal(KeyCode::Char('7')), None);
        assert_eq!(normal(KeyCode::Char('s')), Some(Action::Sort(Sort::Steps)));
        assert_eq!(normal(KeyCode::Char('/')), Some(Action::StartFilter));
        assert_eq!(normal(KeyCode::Enter), Some(Action::Open));
        assert_eq!(normal(KeyCode::F(1)), None);
    }

    #[test]
    fn control_c_ends_the_console_in_each_mode() {
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for mode in [Mode::Normal, Mode::Filter("c".into()), Mode::Question(Request::Cancel("<0.1.1>".into()))] {
            assert_eq!(action(&mode, key), Some(Action::Quit));
        }
    }

    #[test]
    fn a_key_that_is_released_means_nothing() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(action(&Mode::Normal, key), None);
    }

    #[test]
    fn a_filter_is_written_letter_by_letter_up_to_its_limit() {
        let mode = Mode::Filter("ab".into());
        assert_eq!(pressed(&mode, KeyCode::Char('q')), Some(Action::Edit("abq".into())));
        assert_eq!(pressed(&mode, KeyCode::Backspace), Some(Action::Edit("a".into())));
        assert_eq!(pressed(&mode, KeyCode::Enter), Some(Action::Accept("ab".into())));
        assert_eq!(pressed(&mode, KeyCode::Esc), Some(Action::Discard));
        assert_eq!(pressed(&Mode::Filter("a".repeat(LONGEST_FILTER)), KeyCode::Char('b')), None);
        let empties = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        assert_eq!(action(&mode, empties), Some(Action::Edit(String::new())));
    }

    #[test]
    fn only_y_answers_a_question_with_yes() {
        let mode = Mode::Question(Request::Terminate("<0.1.1>".into()));
        assert_eq!(pressed(&mode, KeyCode::Char('y')), Some(Action::Yes));
        for code in [KeyCode::Char('Y'), KeyCode::Char('n'), KeyCode::Enter, KeyCode::Char(' ')] {
            assert_eq!(pressed(&mode, code), Some(Action::Discard));
        }
    }
}

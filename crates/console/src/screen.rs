//! The terminal: keys come in, and the screen is drawn anew after each piece of news.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::app::{App, Link};
use crate::input;
use crate::link::{self, News, Place, Stream};
use crate::moment::Moment;
use crate::once::Source;

/// The longest time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(250);

/// The time between two attempts to connect again.
const RETRY: Duration = Duration::from_secs(1);

/// The most news that are taken before the screen is drawn again.
const MOST_NEWS: usize = 100;

/// The program or the moment that is shown.
enum Other {
    Live { place: Place, writer: Option<Box<dyn Stream>> },
    Saved(Moment),
}

/// Restores the terminal, also if the console fails. At a panic, the hook of `ratatui` has done that before it has
/// printed the panic.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        if !thread::panicking() {
            ratatui::restore();
        }
    }
}

struct Screen {
    app: App,
    other: Other,
    sender: SyncSender<News>,
    /// When it is tried again to connect. `None` while a connection is there or being made.
    retry: Option<Duration>,
}

/// Shows the screen until the user ends it.
pub(crate) fn run(
    app: App,
    source: Source,
    place: Option<Place>,
    sender: SyncSender<News>,
    received: Option<Receiver<News>>,
) -> Result<(), String> {
    let (other, news) = match (source, place, received) {
        (Source::Live { news, writer, .. }, Some(place), _) => (Other::Live { place, writer: Some(writer) }, news),
        (Source::Saved(moment), _, Some(news)) => (Other::Saved(moment), news),
        _ => return Err("there is nothing to show".into()),
    };
    let failed = |error: io::Error| format!("the terminal cannot be used: {error}: for scripts there is `--once`");
    if !io::stdout().is_terminal() {
        return Err("the output is no terminal: for scripts there is `--once`".into());
    }
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let _restored = Restored;
    let keys = sender.clone();
    thread::Builder::new().name("keys".into()).spawn(move || read_keys(&keys)).map_err(failed)?;
    Screen { app, other, sender, retry: None }.run(&mut terminal, &news).map_err(failed)
}

fn read_keys(news: &SyncSender<News>) {
    loop {
        let (last, read) = match event::read() {
            Ok(event) => (false, News::Terminal(event)),
            Err(error) => (true, News::TerminalGone(error)),
        };
        if news.send(read).is_err() || last {
            return;
        }
    }
}

impl Screen {
    fn run(mut self, terminal: &mut DefaultTerminal, news: &Receiver<News>) -> io::Result<()> {
        let begun = Instant::now();
        let area = terminal.size()?;
        self.app.size = (area.width, area.height);
        while !self.app.is_over {
            let now = begun.elapsed();
            self.sends(now)?;
            terminal.draw(|frame| crate::view::draw(&self.app, frame.area(), frame.buffer_mut()))?;
            match news.recv_timeout(LOOK) {
                Ok(first) => {
                    self.takes(first, now)?;
                    for more in news.try_iter().take(MOST_NEWS) {
                        self.takes(more, now)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends the requests that are due, and tries to connect again.
    fn sends(&mut self, now: Duration) -> io::Result<()> {
        let lines = self.app.tick(now);
        match &mut self.other {
            Other::Saved(moment) => lines.iter().for_each(|line| self.app.line(&moment.answer(line))),
            Other::Live { writer: Some(writer), .. } => {
                let sent = lines.iter().try_for_each(|line| writeln!(writer, "{line}"));
                if sent.is_err() {
                    // The thread that reads sees the end, and says so.
                    writer.close();
                }
            }
            Other::Live { place, writer: None } => {
                if self.retry.is_some_and(|at| at <= now) {
                    self.retry = None;
                    link::start(place, &self.sender)?;
                }
            }
        }
        Ok(())
    }

    fn takes(&mut self, news: News, now: Duration) -> io::Result<()> {
        match news {
            News::Line(line) => self.app.line(&line),
            News::Connected(stream) => {
                if let Other::Live { writer, .. } = &mut self.other {
                    *writer = Some(stream);
                }
            }
            News::Gone(reason) => {
                self.app.gone(reason);
                if let Other::Live { writer, .. } = &mut self.other {
                    *writer = None;
                }
                self.retry = Some(now + RETRY);
            }
            News::Terminal(Event::Key(key)) => {
                if let Some(action) = input::action(&self.app.mode, key) {
                    self.app.act(action);
                }
            }
            News::Terminal(Event::Resize(width, height)) => self.app.size = (width, height),
            News::Terminal(_) => {}
            News::TerminalGone(error) => return Err(error),
        }
        Ok(())
    }
}

/// The state of a console that shows a saved moment.
pub(crate) fn saved(app: &mut App, moment: &Moment) {
    app.link = Link::Saved;
    app.line(&moment.hello);
    app.notice.clear();
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// A run of a program: it answers the hello and one request of one client, and ends.
    fn run_of_a_program(path: &PathBuf, started: &'static str) {
        let listener = UnixListener::bind(path).unwrap();
        let path = path.clone();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            assert!(lines.next().unwrap().unwrap().contains("hello"));
            writeln!(stream, r#"{{"hello":1,"started":"{started}","process_id":7}}"#).unwrap();
            assert!(lines.next().unwrap().unwrap().contains("overview"));
            fs::remove_file(path).unwrap();
        });
    }

    #[test]
    fn a_program_that_comes_back_is_connected_again() {
        let path = std::env::temp_dir().join(format!("procession-console-screen-{}.sock", std::process::id()));
        let (sender, news) = sync_channel(4);
        let place = Place::Socket(path.clone());
        let mut screen = Screen {
            app: App::new(place.text(), (80, 24)),
            other: Other::Live { place, writer: None },
            sender,
            retry: Some(Duration::ZERO),
        };
        // Each look is half a second later than the one before.
        let mut looks = (1..).map(|look| look * RETRY / 2);
        for (run, notice) in [("one", ""), ("two", "the program was restarted: process 7, before 7")] {
            run_of_a_program(&path, run);
            let (mut is_up, mut tries) = (false, 0);
            while !is_up || screen.app.link == Link::Up {
                let now = looks.next().unwrap();
                screen.sends(now).unwrap();
                // Nothing comes until it is time to try again.
                let is_waiting = screen.retry.is_some();
                tries += 1;
                assert!(tries < 20, "{:?}", screen.app.link);
                if !is_waiting {
                    let first = news.recv_timeout(Duration::from_secs(30)).unwrap();
                    screen.takes(first, now).unwrap();
                }
                if screen.app.link == Link::Up && !is_up {
                    assert_eq!(screen.app.notice, notice);
                    is_up = true;
                }
            }
        }
        // There is no program now. It is tried again, and not more than once a second.
        let now = looks.next().unwrap();
        screen.retry = Some(now + RETRY);
        screen.sends(now).unwrap();
        assert!(screen.retry.is_some());
        screen.sends(now + RETRY).unwrap();
        let gone = news.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(matches!(&gone, News::Gone(reason) if reason.contains("has the program ended")));
        screen.takes(gone, now + RETRY).unwrap();
        assert_eq!(screen.retry, Some(now + 2 * RETRY));
    }
}

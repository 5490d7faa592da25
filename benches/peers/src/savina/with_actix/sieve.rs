//! Sieve on actix.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message, WrapFuture,
};
use tokio::task::yield_now;

use crate::ours::measure::{Measured, Outcome, Setting};
use crate::peers::report;
use crate::peers::with_actix::stage::Stage;
use crate::savina::problems::BATCH;
use crate::savina::problems::sieve::{Filter, Sifted, candidates, check};

enum FilterMessage {
    Number(u64),
    /// No more numbers follow. Holds the number of primes of the filters so far.
    End(u64),
}

impl Message for FilterMessage {
    type Result = ();
}

/// Ends after the last number. The last filter of the row reports the number of primes.
struct Sifter {
    filter: Filter,
    /// The number of filters before this one.
    place: usize,
    threads: Vec<ArbiterHandle>,
    next: Option<Addr<Sifter>>,
    over: Sender<u64>,
}

impl Sifter {
    fn start_with(first: u64, place: usize, threads: Vec<ArbiterHandle>, over: Sender<u64>) -> Addr<Sifter> {
        let thread = threads[place % threads.len()].clone();
        let filter = Filter::new(first);
        Sifter::start_in_arbiter(&thread, move |_| Sifter { filter, place, threads, next: None, over })
    }
}

impl Actor for Sifter {
    type Context = Context<Self>;
}

impl Handler<FilterMessage> for Sifter {
    type Result = ();

    fn handle(&mut self, message: FilterMessage, context: &mut Context<Self>) {
        match message {
            FilterMessage::Number(number) => match (self.filter.sift(number), &self.next) {
                (Sifted::Divided | Sifted::Kept, _) => {}
                (Sifted::Passed, Some(next)) => next.do_send(FilterMessage::Number(number)),
                (Sifted::Passed, None) => {
                    let (threads, over) = (self.threads.clone(), self.over.clone());
                    self.next = Some(Sifter::start_with(number, self.place + 1, threads, over));
                }
            },
            FilterMessage::End(before) => {
                let primes = before + self.filter.primes();
                match &self.next {
                    Some(next) => next.do_send(FilterMessage::End(primes)),
                    None => drop(self.over.send(primes)),
                }
                context.stop();
            }
        }
    }
}

/// Sends the numbers.
struct Source {
    limit: u64,
    first: Addr<Sifter>,
}

impl Actor for Source {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let (limit, first) = (self.limit, self.first.clone());
        let work = async move {
            let mut sent = 0;
            for number in candidates(limit) {
                first.do_send(FilterMessage::Number(number));
                sent += 1;
                if sent == BATCH {
                    yield_now().await;
                    sent = 0;
                }
            }
            first.do_send(FilterMessage::End(0));
        };
        context.spawn(work.into_actor(self).map(|(), _, context| context.stop()));
    }
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let stage = Stage::new(setting);
    let (over, primes) = channel();
    let began = Instant::now();
    let first = Sifter::start_with(2, 0, stage.threads(), over);
    stage.start_on(1, Source { limit: setting.n, first });
    let primes = report(&primes)?;
    let measured = Measured::since(began, setting.n);
    check(primes, setting.n)?;
    stage.finish()?;
    Ok(measured)
}

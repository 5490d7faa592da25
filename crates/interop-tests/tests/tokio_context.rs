//! Futures and async processes of ours that use the timers, sockets and tasks of tokio, which our workers poll.

use std::time::Duration;

use interop_tests::LIMIT;
use procession::async_process::Context;
use procession::{
    BoxError, CommandError, Event, Events, Exit, Process, Runtime, Step, StepOutput, StepResult, Tag, async_process,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};

const CLIENTS: usize = 8;
const TRIPS: u32 = 200;

/// Runs the test with a runtime of ours within each kind of tokio. The thread of a runtime with one thread drives it.
fn within_tokio(test: impl Fn(&Runtime) + Send + Sync + 'static) {
    let test = std::sync::Arc::new(test);
    let kinds = [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ];
    for tokio in kinds {
        let runtime = entering(tokio.handle().clone());
        let test = test.clone();
        tokio.block_on(async move { tokio::task::spawn_blocking(move || test(&runtime)).await }).unwrap();
    }
}

fn entering(tokio: Handle) -> Runtime {
    let context = move |poll: &mut dyn FnMut()| {
        let _entered = tokio.enter();
        poll();
    };
    Runtime::builder().workers(2).in_context(context).start().unwrap()
}

/// Waits for a timer of tokio.
async fn pause() {
    let mut ticks = tokio::time::interval(Duration::from_micros(100));
    // The first one is at once.
    ticks.tick().await;
    ticks.tick().await;
}

fn output<P: Process>(handle: &procession::Handle<P>) -> std::sync::Arc<P::Output> {
    handle.join_timeout(LIMIT).unwrap().into_result().unwrap()
}

/// Sends numbers back, to one connection.
async fn echo(mut stream: TcpStream) -> Result<u32, BoxError> {
    let mut trips = 0;
    loop {
        match stream.read_u32().await {
            Ok(n) => stream.write_u32(n).await?,
            Err(_) => return Ok(trips),
        }
        trips += 1;
    }
}

/// Accepts connections, and spawns a process for each.
async fn server(context: Context<std::sync::mpsc::Sender<std::net::SocketAddr>>) -> Result<u32, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let told = context.next().await.ok_or("stopped")?;
    told.send(listener.local_addr()?)?;
    let mut children = Vec::new();
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept().await?;
        children.push(context.out(|out| out.run(async_process(move |_: Context<()>| echo(stream)))));
    }
    let mut trips = 0;
    for child in children {
        trips += context.answer(child).await?;
    }
    Ok(trips)
}

#[test]
fn async_processes_use_sockets_and_timers_of_tokio() {
    within_tokio(|runtime| {
        let server = runtime.spawn(async_process(server)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        runtime.send(&server, tell).unwrap();
        let address = told.recv_timeout(LIMIT).unwrap();
        let client = move |_: Context<()>| async move {
            let mut stream = TcpStream::connect(address).await?;
            for n in 0..TRIPS {
                stream.write_u32(n).await?;
                if tokio::time::timeout(LIMIT, stream.read_u32()).await?? != n {
                    return Err("another number came back".into());
                }
            }
            pause().await;
            Ok(tokio::spawn(async { 1 }).await?)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| runtime.spawn(async_process(client)).unwrap()).collect();
        assert_eq!(clients.iter().map(|client| *output(client)).sum::<usize>(), CLIENTS);
        assert_eq!(*output(&server), CLIENTS as u32 * TRIPS);
    });
}

/// A message, a question of ours and a timer of tokio race in one process.
#[test]
fn waits_of_ours_and_of_tokio_are_polled_together() {
    within_tokio(|runtime| {
        let handle = runtime.spawn(async_process(async |context: Context<u32>| {
            let (mut messages, mut timers) = (0, 0);
            while messages < 1_000 {
                tokio::select! {
                    message = context.next() => messages += u32::from(message.is_some()),
                    () = pause() => timers += 1,
                }
            }
            Ok((messages, timers))
        }));
        let handle = handle.unwrap();
        (0..1_000).for_each(|n| runtime.send(&handle, n).unwrap());
        assert_eq!(output(&handle).0, 1_000);
    });
}

struct Sleeper(Option<Tag<()>>);

impl Process for Sleeper {
    type Message = ();
    type Output = Result<(), String>;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Result<(), String>> {
        if self.0.is_none() {
            self.0 = Some(out.future(pause()));
        }
        for event in events {
            if let Event::Completed(done) = event
                && let Some(answer) = done.take(self.0)
            {
                return Ok(Step::Done(answer.map_err(|error| match error {
                    CommandError::Panicked(_) => "panicked".into(),
                    other => other.to_string(),
                })));
            }
        }
        Ok(Step::Wait)
    }
}

#[test]
fn a_future_uses_tokio_and_without_the_context_its_panic_is_the_answer() {
    within_tokio(|runtime| assert_eq!(*output(&runtime.spawn(Sleeper(None)).unwrap()), Ok(())));
    let runtime = Runtime::builder().workers(1).start().unwrap();
    assert_eq!(*output(&runtime.spawn(Sleeper(None)).unwrap()), Err("panicked".into()));
    let sleeper = async |_: Context<()>| {
        pause().await;
        Ok(())
    };
    let handle = runtime.spawn(async_process(sleeper)).unwrap();
    assert!(matches!(handle.join_timeout(LIMIT).unwrap(), Exit::Panicked(_)));
}

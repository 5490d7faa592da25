//! The memory of async processes.

use std::time::Duration;

use procession::async_process;
use procession::async_process::Context;
use procession::{Address, Reply};

use crate::helpers::*;
use crate::resident::*;

/// Waits that are dropped: of questions, of timers, and for messages.
async fn drops(context: Context<u32>, asked: Address<Reply<u32>>, rounds: u32) {
    for _ in 0..rounds {
        for _ in 0..1_000 {
            drop(context.ask(asked, |reply: Reply<u32>| reply, LIMIT));
            drop(context.sleep(Duration::from_secs(3_600)));
            drop(context.next());
        }
        context.sleep(Duration::ZERO).await.unwrap();
    }
}

#[test]
fn dropped_waits_and_idle_async_processes_leave_little() {
    alone(|| {
        let runtime = runtime(1);
        let asked = async |context: Context<Reply<u32>>| {
            while let Some(reply) = context.next().await {
                context.reply(reply, 1);
            }
            Ok(())
        };
        let asked = runtime.spawn(async_process(asked)).unwrap().address();
        // A million waits for answers that are dropped.
        let dropping = runtime.spawn(async_process(async move |context: Context<u32>| {
            drops(context.clone(), asked, 20).await;
            let before = resident_kib();
            drops(context, asked, 500).await;
            Ok(before)
        }));
        let before = *output(&dropping.unwrap());
        assert_grown_by_at_most(4 * 1024, before);
        until("no timer is left", || runtime.stats().timers == 0);

        // An idle one needs its body, its desk, its bell and its future.
        const MANY: u64 = 100_000;
        let before = resident_kib();
        let parent = runtime.spawn(async_process(async |context: Context<u32>| {
            for _ in 0..MANY / 1_000 {
                for _ in 0..1_000 {
                    context
                        .out(|out| out.spawn(async_process(async |context: Context<u32>| Ok(context.next().await))))?;
                }
                context.sleep(Duration::ZERO).await?;
            }
            Ok(())
        }));
        output(&parent.unwrap());
        until("all are idle", || runtime.is_idle());
        if let Some((before, after)) = before.zip(resident_kib()) {
            let bytes = (after - before) * 1024 / MANY;
            println!("{bytes} bytes for an idle async process");
            assert!(bytes <= 700, "{bytes} bytes for an idle async process");
        }
    });
}

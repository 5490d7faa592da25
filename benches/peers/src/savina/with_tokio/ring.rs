//! ThreadRing on raw tokio.

use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ours::measure::{Measured, Outcome, Setting, check};
use crate::peers::tokio_runtime;
use crate::savina::problems::RING;

/// The number of hops that are left.
struct Token(u64);

/// Ends with the last hop, or when no task is left that could send it the token.
async fn hop(mut inbox: UnboundedReceiver<Token>, next: UnboundedSender<Token>) -> u64 {
    let mut had = 0;
    while let Some(Token(left)) = inbox.recv().await {
        had += 1;
        if left == 0 || next.send(Token(left - 1)).is_err() {
            break;
        }
    }
    had
}

pub(crate) fn run(setting: &Setting) -> Outcome<Measured> {
    let runtime = tokio_runtime(setting)?;
    let began = Instant::now();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..RING).map(|_| unbounded_channel()).unzip();
    let mut hoppers = Vec::new();
    for (inbox, next) in inboxes.into_iter().zip(senders.iter().cycle().skip(1)) {
        hoppers.push(runtime.spawn(hop(inbox, next.clone())));
    }
    senders[0].send(Token(setting.n - 1))?;
    // The last task's end ends the others, because each loses its only sender.
    drop(senders);
    let last = hoppers.swap_remove(((setting.n - 1) % RING) as usize);
    let mut had = runtime.block_on(last)?;
    let measured = Measured::since(began, setting.n);
    for hopper in hoppers {
        had += runtime.block_on(hopper)?;
    }
    check("hops", had, setting.n)?;
    Ok(measured)
}

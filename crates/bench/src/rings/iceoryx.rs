//! A peer: iceoryx2's publish and subscribe, with one publisher and one subscriber, each a process. Its samples are
//! lent, filled in place, and read in place. It can sleep only by a second mechanism, so both sides stay awake, as ours
//! do in these rows.

use super::payload::fill;
use super::pipes::Use;
use super::processes::{Part, Ran, run};
use iceoryx2::prelude::*;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};

type Factory<const BYTES: usize> =
    iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u8; BYTES], ()>;

fn text(error: impl Debug) -> String {
    format!("iceoryx2: {error:?}")
}

/// A node of this process, and the service. Made after the fork, since nodes belong to processes.
fn open<const BYTES: usize>(name: &str, samples: usize) -> Result<(Node<ipc::Service>, Factory<BYTES>), String> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>().map_err(text)?;
    let service = node
        .service_builder(&name.try_into().map_err(text)?)
        .publish_subscribe::<[u8; BYTES]>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(samples)
        .open_or_create()
        .map_err(text)?;
    Ok((node, service))
}

/// Blocks filled in place, one call each, and used in place; at most `samples` of them are on the way.
pub fn stream<const BYTES: usize>(samples: usize, blocks: u64, what: Use) -> Result<Ran, String> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let name = format!("streamline-bench-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    // Samples sent before the subscriber's first look were lost, whatever the strategy for a full buffer.
    let (mut made, mut publisher_made) = std::io::pipe().map_err(text)?;
    let (mut looked, mut subscriber_looked) = std::io::pipe().map_err(text)?;
    run(&mut [
        Part::new(0, || {
            let (_node, service) = open::<BYTES>(&name, samples)?;
            let strategy = BackpressureStrategy::RetryUntilDelivered;
            let publisher = service.publisher_builder().backpressure_strategy(strategy).create().map_err(text)?;
            publisher_made.write_all(&[1]).map_err(text)?;
            looked.read_exact(&mut [0]).map_err(text)?;
            for number in 0..blocks {
                let mut sample = publisher.loan_uninit().map_err(text)?;
                // SAFETY: bytes of any value are a value; `fill` writes all of them.
                let sample = unsafe {
                    fill(sample.payload_mut().assume_init_mut(), number);
                    sample.assume_init()
                };
                sample.send().map_err(text)?;
            }
            while service.dynamic_config().number_of_subscribers() > 0 {
                std::hint::spin_loop();
            }
            Ok(0.0)
        }),
        Part::new(1, || {
            let (_node, service) = open::<BYTES>(&name, samples)?;
            let subscriber = service.subscriber_builder().create().map_err(text)?;
            made.read_exact(&mut [0]).map_err(text)?;
            if subscriber.receive().map_err(text)?.is_some() {
                return Err(text("a sample before any was sent"));
            }
            subscriber_looked.write_all(&[1]).map_err(text)?;
            for number in 0..blocks {
                let sample = loop {
                    match subscriber.receive().map_err(text)? {
                        Some(sample) => break sample,
                        None => std::hint::spin_loop(),
                    }
                };
                what.of(sample.payload(), number)?;
            }
            Ok(0.0)
        }),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives() {
        stream::<64>(256, 5000, Use::Copy).unwrap();
        stream::<65536>(8, 100, Use::Sum).unwrap();
    }
}

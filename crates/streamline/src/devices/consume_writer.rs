//! A device's ring of packets that are taken away from the host: by AF_XDP sockets, and from their memory copied into the
//! ring by a thread for each of the device's queues.
//!
//! The sockets' memory itself is not handed out, for whoever holds it holds the device: chunks that a reader does not give
//! back are missing where packets arrive, and a reader from whom they were taken by force could not find out that what it
//! looks at has been written anew, for the kernel does not say beforehand what it will write. ARCHITECTURE.md has more.

use super::opener::trouble;
use capture::copying::{self, Copied, Copier, Copying};
use capture::{Device, ETHERNET, Trouble};
use driver::af_packet::PacketSocket;
use driver::af_xdp::{self, Queue};
use driver::device::Device as DriverDevice;
use driver::link::XdpMode;
use driver::namespace::Namespace;
use driver::{Receive, ReceiveStatistics, Turn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread looks this often whether it is still needed, and says what it has counted.
const LOOK: Duration = Duration::from_millis(100);

/// Chunks for what arrives at a queue: the first of these for which memory may be locked.
const CHUNKS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// Nothing is sent; fewer make no ring.
const TRANSMIT_CHUNKS: u32 = 64;

/// What a chunk of 2,048 bytes has room for, and of a packet its Ethernet header with two tags.
const SMALL_CHUNK: (u32, u32) = (2048 - 256, 14 + 8);

pub(crate) struct ConsumeWriter {
    device: Device,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    promiscuous: Option<PacketSocket>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    gone: AtomicBool,
    /// By place of the queue.
    statistics: Mutex<Vec<ReceiveStatistics>>,
}

impl ConsumeWriter {
    pub(crate) fn open(
        namespace: &Namespace,
        device: &DriverDevice,
        link_type: u16,
        ring_bytes: u64,
    ) -> Result<Copied<ConsumeWriter>, Trouble> {
        let link = &device.link;
        let (ring, copying) = copying::ring(&link.name, ring_bytes)?;
        let opened = open(namespace, &link.name, link.mtu).map_err(trouble)?;
        let place = if opened.mode == XdpMode::Native { "in the driver" } else { "behind the driver" };
        let copied = if opened.queues.iter().all(|queue| queue.zero_copy) { "" } else { " and copied twice" };
        let how = format!("taken away from the host {place}{copied} (AF_XDP)");
        let device = Device { name: link.name.clone(), index: link.index, link_type, mtu: link.mtu, how };
        let shared = Arc::<Shared>::default();
        let statistics = vec![ReceiveStatistics::default(); opened.queues.len()];
        *shared.statistics.lock().unwrap_or_else(PoisonError::into_inner) = statistics;
        // From here on dropping it ends the threads that were started.
        let mut writer = ConsumeWriter { device, shared, threads: Vec::new(), promiscuous: None };
        let copying = Arc::new(Mutex::new(copying));
        for (place, queue) in opened.queues.into_iter().enumerate() {
            writer.start(place, queue, link_type == ETHERNET, Arc::clone(&copying))?;
        }
        Ok(Copied::new(writer, ring))
    }

    fn start(
        &mut self,
        place: usize,
        queue: Queue,
        ethernet: bool,
        copying: Arc<Mutex<Copying>>,
    ) -> Result<(), Trouble> {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new()
            .name(format!("take-{}", self.device.name))
            .spawn(move || copy(queue.receiver, place, ethernet, &copying, &shared));
        self.threads.push(started.map_err(|error| Trouble::system("no thread can be made", &error))?);
        Ok(())
    }
}

/// Opens all queues, with as much memory as may be locked.
fn open(namespace: &Namespace, name: &str, mtu: u32) -> Result<af_xdp::Device, driver::Error> {
    let (room, header) = SMALL_CHUNK;
    let chunk_bytes = if mtu.saturating_add(header) <= room { 2048 } else { 4096 };
    let mut refused = None;
    for receive_chunks in CHUNKS {
        let options = af_xdp::Options {
            receive_chunks,
            transmit_chunks: TRANSMIT_CHUNKS,
            chunk_bytes,
            ..af_xdp::Options::default()
        };
        match af_xdp::Device::open(namespace, name, options) {
            Err(error @ driver::Error::NotPermitted { .. }) => refused = Some(error),
            opened => return opened,
        }
    }
    Err(refused.unwrap_or_else(|| driver::Error::Absent(name.into())))
}

/// A thread: from a queue's chunks into the ring.
fn copy(mut receiver: impl Receive, place: usize, ethernet: bool, copying: &Mutex<Copying>, shared: &Shared) {
    // Whoever panicked while publishing left a packet that nobody sees.
    let lock = || copying.lock().unwrap_or_else(PoisonError::into_inner);
    while !shared.ended.load(Ordering::Acquire) {
        let turn = receiver.receive(LOOK, &mut |batch| {
            lock().batch(|publisher| {
                for frame in batch.frames {
                    let bytes = frame.bytes_without_tag();
                    let hash = kernel::hash::of(bytes, ethernet);
                    publisher.publish(buffer::live::Facts { hash, ..frame.facts(0) }, bytes);
                }
            });
        });
        match turn {
            Ok(Turn::Frames(_)) => continue,
            Ok(Turn::Nothing) => {}
            // It says so at once, again and again.
            Ok(Turn::Down) => std::thread::sleep(LOOK),
            Err(_) => {
                // The device is gone, or the socket is of no more use: readers are told by their owner.
                shared.gone.store(true, Ordering::Release);
                lock().ring();
                return;
            }
        }
        if let Ok(statistics) = receiver.statistics() {
            shared.statistics.lock().unwrap_or_else(PoisonError::into_inner)[place] = statistics;
        }
    }
}

impl Drop for ConsumeWriter {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // It has no way to panic that could be mended here.
            let _ = thread.join();
        }
    }
}

impl Copier for ConsumeWriter {
    fn device(&self) -> Device {
        self.device.clone()
    }

    fn promiscuous(&mut self, wanted: bool) -> Result<(), Trouble> {
        super::set_promiscuous(&mut self.promiscuous, self.device.index, wanted)
    }

    fn gone(&mut self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    fn statistics(&mut self) -> Vec<(String, u64)> {
        let statistics = self.shared.statistics.lock().unwrap_or_else(PoisonError::into_inner);
        let all = statistics.iter().map(ReceiveStatistics::all);
        let summed = all.reduce(|mut sum, queue| {
            sum.iter_mut().zip(queue).for_each(|(sum, counter)| sum.value += counter.value);
            sum
        });
        summed.into_iter().flatten().map(|counter| (counter.name.to_string(), counter.value)).collect()
    }
}

//! A device's ring of packets that are taken away from the host: by AF_XDP sockets, and from their memory copied into the
//! ring by a thread for each of the device's queues.
//!
//! What none of the readers' expressions wants stays the host's: the device's program asks them all ([`kernel::ConsumeProgram`]), and is
//! exchanged when readers come, go or ask for something else. Above they are asked one by one, for whom a packet is. What was
//! taken for a reader that went meanwhile is nobody's.
//!
//! The sockets' memory itself is not handed out, for whoever holds it holds the device: chunks that a reader does not give
//! back are missing where packets arrive, and a reader from whom they were taken by force could not find out that what it
//! looks at has been written anew, for the kernel does not say beforehand what it will write. ARCHITECTURE.md has more.

use super::Promiscuous;
use super::kernel_writer::cannot_choose;
use super::opener::capture_error;
use buffer::live::memory::Count;
use capture::copying::{self, Copied, Copier, Copying};
use capture::writer::own;
use capture::{CaptureError, Device, ETHERNET, Expression};
use driver::af_xdp::{self, Queue};
use driver::device::Device as DriverDevice;
use driver::link::XdpMode;
use driver::namespace::Namespace;
use driver::{Receive, ReceiveStatistics, Turn};
use kernel::consume_program::{ConsumeCounts, Counting};
use kernel::{ConsumeProgram, Wanted};
use program::Program;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    promiscuous: Promiscuous,
    /// Where the program is; its sockets are the threads'.
    attached: af_xdp::Device,
    chooses: Chooses,
}

/// Who chooses what is taken.
enum Chooses {
    /// This program.
    Program(Chosen),
    /// Nobody: everything is taken, for this kernel runs no such program.
    Nobody(CaptureError),
}

/// The program that chooses.
struct Chosen {
    counting: Counting,
    /// It, and what any of these wants; all, where it is not said. Held while another takes its place.
    consume_program: Mutex<(ConsumeProgram, Option<Vec<Arc<Program>>>)>,
}

impl Chosen {
    fn consume_program(&self) -> MutexGuard<'_, (ConsumeProgram, Option<Vec<Arc<Program>>>)> {
        // Whoever panicked under it had not changed it yet.
        self.consume_program.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    ) -> Result<Copied<ConsumeWriter>, CaptureError> {
        let link = &device.link;
        let (ring, copying) = copying::ring(&link.name, ring_bytes)?;
        // Nobody wants anything yet.
        let chooses = match ConsumeProgram::new(link.receive_queues, Wanted::Any(&[])) {
            Ok(consume_program) => Chooses::Program(Chosen {
                counting: consume_program.counting(),
                consume_program: Mutex::new((consume_program, Some(Vec::new()))),
            }),
            Err(error) => Chooses::Nobody(cannot_choose(error)),
        };
        let mut opened = open(namespace, &link.name, link.mtu, &chooses)?;
        let place = if opened.mode == XdpMode::Native { "in the driver" } else { "behind the driver" };
        let copied = if opened.queues.iter().all(|queue| queue.zero_copy) { "" } else { " and copied twice" };
        let how = format!("taken away from the host {place}{copied} (AF_XDP)");
        let device = Device { name: link.name.clone(), index: link.index, link_type, mtu: link.mtu, how, copied: true };
        let shared = Arc::<Shared>::default();
        let statistics = vec![ReceiveStatistics::default(); opened.queues.len()];
        *shared.statistics.lock().unwrap_or_else(PoisonError::into_inner) = statistics;
        let queues = std::mem::take(&mut opened.queues);
        // From here on dropping it ends the threads that were started.
        let mut writer = ConsumeWriter {
            device,
            shared,
            threads: Vec::new(),
            promiscuous: Promiscuous::default(),
            attached: opened,
            chooses,
        };
        let copying = Arc::new(Mutex::new(copying));
        for (place, queue) in queues.into_iter().enumerate() {
            // One of them keeps the program's books.
            let counting = match &writer.chooses {
                Chooses::Program(chosen) if place == 0 => Some(chosen.consume_program().0.counting()),
                _ => None,
            };
            writer.start(place, queue, link_type == ETHERNET, Arc::clone(&copying), counting)?;
        }
        Ok(Copied::new(writer, ring))
    }

    fn start(
        &mut self,
        place: usize,
        queue: Queue,
        ethernet: bool,
        copying: Arc<Mutex<Copying>>,
        counting: Option<Counting>,
    ) -> Result<(), CaptureError> {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new()
            .name(format!("take-{}", self.device.name))
            .spawn(move || copy(queue.receiver, place, ethernet, &copying, &shared, counting.as_ref()));
        self.threads.push(started.map_err(|error| CaptureError::system("no thread can be made", &error))?);
        Ok(())
    }
}

/// Opens all queues, with as much memory as may be locked.
fn open(namespace: &Namespace, name: &str, mtu: u32, chooses: &Chooses) -> Result<af_xdp::Device, CaptureError> {
    let (room, header) = SMALL_CHUNK;
    let chunk_bytes = if mtu.saturating_add(header) <= room { 2048 } else { 4096 };
    let mut refused = None;
    for receive_chunks in CHUNKS {
        let program = match chooses {
            Chooses::Program(chosen) => {
                let (consume_program, _) = &*chosen.consume_program();
                Some(af_xdp::Program {
                    program: own(consume_program.program())?,
                    sockets: own(consume_program.sockets())?,
                    link: None,
                })
            }
            Chooses::Nobody(_) => None,
        };
        let options = af_xdp::Options {
            program,
            receive_chunks,
            transmit_chunks: TRANSMIT_CHUNKS,
            chunk_bytes,
            ..af_xdp::Options::default()
        };
        match af_xdp::Device::open(namespace, name, options) {
            Err(error @ driver::Error::NotPermitted { .. }) => refused = Some(error),
            opened => return opened.map_err(capture_error),
        }
    }
    Err(capture_error(refused.unwrap_or_else(|| driver::Error::Absent(name.into()))))
}

/// A thread: from a queue's chunks into the ring.
fn copy(
    mut receiver: impl Receive,
    place: usize,
    ethernet: bool,
    copying: &Mutex<Copying>,
    shared: &Shared,
    counting: Option<&Counting>,
) {
    // Whoever panicked while publishing left a packet that nobody sees.
    let lock = || copying.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = Count::default();
    while !shared.ended.load(Ordering::Acquire) {
        let turn = receiver.receive(LOOK, &mut |batch| {
            lock().batch(|publisher| {
                for frame in batch.frames {
                    let bytes = frame.bytes_without_tag();
                    let flow = kernel::flow::of(bytes, frame.wire, ethernet);
                    publisher.publish(flow.add_to(frame.facts(0)), bytes);
                }
            });
        });
        if let Some(counting) = counting {
            let now = left_to_host(counting.counted());
            let more = now.since(left);
            if more.packets > 0 {
                lock().kept_out(more.packets, more.wire_bytes);
            }
            left = now;
        }
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

fn left_to_host(counted: ConsumeCounts) -> Count {
    Count { packets: counted.left, wire_bytes: counted.left_bytes }
}

/// What any of these wants, each once; none for everything.
fn programs(expressions: &[&Expression]) -> Option<Vec<Arc<Program>>> {
    let mut different: Vec<Arc<Program>> = Vec::new();
    for expression in expressions {
        let program = expression.program.as_ref()?;
        if !different.contains(program) {
            different.push(Arc::clone(program));
        }
    }
    Some(different)
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

    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError> {
        self.promiscuous.set(self.device.index, wanted)
    }

    fn sift(&self, expressions: &[&Expression]) -> Result<(), CaptureError> {
        let wanted = programs(expressions);
        let mut chosen = match &self.chooses {
            Chooses::Program(chosen) => chosen.consume_program(),
            // Nobody asks for more than is taken anyway.
            Chooses::Nobody(error) if wanted.as_ref().is_some_and(|wanted| !wanted.is_empty()) => {
                return Err(error.clone());
            }
            Chooses::Nobody(_) => return Ok(()),
        };
        let (consume_program, before) = &mut *chosen;
        if *before == wanted {
            return Ok(());
        }
        let programs: Option<Vec<&Program>> = wanted.as_ref().map(|wanted| wanted.iter().map(Arc::as_ref).collect());
        let chosen =
            consume_program.with(programs.as_deref().map_or(Wanted::All, Wanted::Any)).map_err(cannot_choose)?;
        self.attached.exchange(chosen.program()).map_err(capture_error)?;
        (*consume_program, *before) = (chosen, wanted);
        Ok(())
    }

    fn gone(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        let statistics = self.shared.statistics.lock().unwrap_or_else(PoisonError::into_inner);
        let all = statistics.iter().map(ReceiveStatistics::all);
        let summed = all.reduce(|mut sum, queue| {
            sum.iter_mut().zip(queue).for_each(|(sum, counter)| sum.value += counter.value);
            sum
        });
        let mut all: Vec<(String, u64)> =
            summed.into_iter().flatten().map(|counter| (counter.name.to_string(), counter.value)).collect();
        if let Chooses::Program(chosen) = &self.chooses {
            all.push(("host.left".into(), chosen.counting.counted().left));
        }
        all
    }
}

//! A device's ring of packets that are taken away from the host. AF_XDP sockets receive them; a thread for each queue
//! of the device copies them into the ring.
//!
//! The device's program asks all readers' expressions ([`kernel::ConsumeProgram`]); a packet that matches none stays
//! with the host. The program is replaced when readers come, go or change their expressions. The ring's writer then
//! asks the expressions one by one to mark each packet's readers. A packet taken for a reader that has left meanwhile
//! has no reader.
//!
//! Readers do not get the sockets' memory itself, since its holder controls the device:
//! - Chunks that a reader does not give back are missing where packets arrive.
//! - Chunks could be taken back by force, but the kernel does not announce what it will write. A reader could not
//!   notice that the bytes it looks at were overwritten.
//!
//! `docs/decisions/consume.md` has more.

use super::Promiscuous;
use super::error::capture_error;
use super::kernel_writer::cannot_choose;
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

const LOOK: Duration = Duration::from_millis(100);

/// Chunks for packets that arrive at a queue: the first of these sizes for which memory may be locked.
const CHUNKS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// The smallest number for a ring. It stays unused: this writer sends no packets.
const TRANSMIT_CHUNKS: u32 = 64;

/// Room in a chunk of 2,048 bytes; and the size of an Ethernet header with two tags.
const SMALL_CHUNK: (u32, u32) = (2048 - 256, 14 + 8);

pub(crate) struct ConsumeWriter {
    device: Device,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    promiscuous: Promiscuous,
    /// The device with the attached program; the threads have its sockets.
    attached: af_xdp::Device,
    chooses: Chooses,
}

enum Chooses {
    Program(Chosen),
    /// No program: this kernel does not run one, so every packet is taken.
    Nobody(CaptureError),
}

struct Chosen {
    counting: Counting,
    /// The program, and what any reader wants (`None` = everything). Locked while another program takes its place.
    consume_program: Mutex<(ConsumeProgram, Option<Vec<Arc<Program>>>)>,
}

impl Chosen {
    fn consume_program(&self) -> MutexGuard<'_, (ConsumeProgram, Option<Vec<Arc<Program>>>)> {
        // A thread that panicked under this lock had not changed the value yet.
        self.consume_program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    gone: AtomicBool,
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
        // From here on, dropping `writer` ends the threads that were started.
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

fn copy(
    mut receiver: impl Receive,
    place: usize,
    ethernet: bool,
    copying: &Mutex<Copying>,
    shared: &Shared,
    counting: Option<&Counting>,
) {
    // A thread that panicked while publishing left a packet that no reader sees.
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
            // A device that is down says so at once, again and again.
            Ok(Turn::Down) => std::thread::sleep(LOOK),
            Err(_) => {
                // The device is gone, or the socket is unusable. The readers' owner tells them.
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

/// The different programs of these expressions. `None`: one of them wants everything.
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
            // Refuse a choice that no program can make; wanting everything is fine.
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

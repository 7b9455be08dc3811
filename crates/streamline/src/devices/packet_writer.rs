//! A device's ring written by a thread that copies from a packet socket: for devices and kernels whose programs cannot, or
//! would see packets otherwise than a packet socket does.

use super::opener::trouble;
use buffer::live::Facts;
use capture::copying::{self, Copied, Copier, Copying};
use capture::{Device, ETHERNET, Trouble};
use driver::Receive;
use driver::af_packet::{Options, PacketSocket, Receiver};
use driver::device::Device as DriverDevice;
use driver::namespace::Namespace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread looks this often whether it is still needed.
const LOOK: Duration = Duration::from_millis(100);

/// Longest packet there is, with tags.
const PACKET_BYTES: usize = buffer::live::words::PACKET_BYTES;

pub(crate) struct PacketWriter {
    device: Device,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    promiscuous: Option<PacketSocket>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    gone: AtomicBool,
    statistics: Mutex<Vec<(String, u64)>>,
}

impl PacketWriter {
    /// `why` is why it is this one that writes.
    pub(crate) fn open(
        namespace: &Namespace,
        device: &DriverDevice,
        link_type: u16,
        ring_bytes: u64,
        why: &str,
    ) -> Result<Copied<PacketWriter>, Trouble> {
        let link = &device.link;
        let options = Options::default();
        let receiver = Receiver::open(namespace, &link.name, &options).map_err(trouble)?;
        let (ring, copying) = copying::ring(&link.name, ring_bytes)?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("copy-{}", link.name))
            .spawn(move || copy(receiver, link_type == ETHERNET, copying, &theirs))
            .map_err(|error| Trouble::system("no thread can be made", &error))?;
        let device = Device {
            name: link.name.clone(),
            index: link.index,
            link_type,
            mtu: link.mtu,
            how: format!("copied from a packet socket (TPACKET_V3): {why}"),
        };
        Ok(Copied::new(PacketWriter { device, shared, thread: Some(thread), promiscuous: None }, ring))
    }
}

/// The thread: from the socket's ring into the live one.
fn copy(mut receiver: Receiver, ethernet: bool, mut copying: Copying, shared: &Shared) {
    let mut scratch = vec![0; PACKET_BYTES];
    while !shared.ended.load(Ordering::Acquire) {
        let turn = receiver.receive(LOOK, &mut |batch| {
            copying.batch(|publisher| {
                for frame in batch.frames {
                    let bytes = match frame.tag() {
                        None => frame.bytes_without_tag(),
                        Some(_) => {
                            let len = frame.copy_into(&mut scratch);
                            &scratch[..len]
                        }
                    };
                    let hash = kernel::hash::of(bytes, ethernet);
                    publisher.publish(Facts { hash, ..frame.facts(0) }, bytes);
                }
            });
        });
        match turn {
            Ok(driver::Turn::Frames(_)) => {}
            Ok(driver::Turn::Nothing | driver::Turn::Down) => {
                if let Ok(statistics) = receiver.statistics() {
                    let all = statistics.all().map(|counter| (counter.name.to_string(), counter.value));
                    *shared.statistics.lock().unwrap_or_else(PoisonError::into_inner) = all.to_vec();
                }
            }
            Err(_) => {
                // The device is gone, or the socket is of no more use: readers are told by their owner.
                shared.gone.store(true, Ordering::Release);
                copying.ring();
                return;
            }
        }
    }
}

impl Drop for PacketWriter {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It has no way to panic that could be mended here.
            let _ = thread.join();
        }
    }
}

impl Copier for PacketWriter {
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
        self.shared.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

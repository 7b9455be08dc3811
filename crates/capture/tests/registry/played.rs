//! A device that a test plays, and common requests of its readers.

use buffer::live::{Areas, Facts, Geometry, SlotFlags};
use capture::CaptureErrorKind;
use capture::copying::{Copying, Ring, ring};
use capture::reader::Found;
use capture::{
    By, CaptureError, CaptureReader, CaptureRegistry, CaptureRequest, Device, Expression, Mode, Opened, Writer,
};
use program::Program;
use program::cbpf::Instruction;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

pub(crate) struct Played {
    ring: Ring,
    name: String,
    does: Does,
    promiscuous: AtomicBool,
    /// Its end waits for a message from here.
    lingers: Mutex<Option<mpsc::Receiver<()>>>,
    _alive: Arc<()>,
}

/// Orders for the played devices, and counts of the calls that they got.
#[derive(Default, Clone)]
pub(crate) struct Does {
    /// The step that fails, counted from 1 from now on; 0 for none.
    pub(crate) fails: Arc<AtomicU32>,
    pub(crate) sets: Arc<AtomicU32>,
    /// Number of tests in the programs of the last expressions.
    pub(crate) blocks: Arc<AtomicU32>,
    pub(crate) promiscuous: Arc<AtomicI32>,
    /// The devices are unplugged.
    pub(crate) gone: Arc<AtomicBool>,
    /// The device of this name pauses at its next expressions: it reports that, and waits for permission to go on.
    pub(crate) slow: Arc<Mutex<Option<Slow>>>,
}

pub(crate) struct Slow {
    device: &'static str,
    says: mpsc::Sender<()>,
    goes_on: mpsc::Receiver<()>,
}

impl Does {
    /// Makes a device slow: gives a receiver of its report, and a sender of the permission to go on.
    pub(crate) fn be_slow(&self, device: &'static str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((says, begun), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
        *self.slow.lock().unwrap() = Some(Slow { device, says, goes_on });
        (begun, go_on)
    }
}

impl Does {
    fn step(&self, what: &str) -> Result<(), CaptureError> {
        let counted = self.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |fails| fails.checked_sub(1));
        if counted == Ok(1) {
            Err(CaptureError::new(CaptureErrorKind::System, format!("{what} fails")))
        } else {
            Ok(())
        }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.does.promiscuous.fetch_sub(i32::from(*self.promiscuous.get_mut()), Ordering::SeqCst);
        if let Some(until) = self.lingers.get_mut().unwrap().take() {
            let _ = until.recv_timeout(Duration::from_secs(30));
        }
    }
}

#[derive(Default, Clone)]
pub(crate) struct Player {
    pub(crate) halves: Arc<Mutex<VecDeque<Copying>>>,
    pub(crate) does: Does,
    pub(crate) lingers: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
    pub(crate) alive: Arc<()>,
}

impl Opened for Player {
    fn index(&self, _device: &str) -> Result<u32, CaptureError> {
        Ok(1)
    }

    /// One for each block except the last two, in which all programs here end.
    fn cost(&self, program: Option<&Program>, sample: u32) -> u32 {
        program.map_or(0, |program| (program.blocks().len() as u32).saturating_sub(2)) + if sample > 1 { 10 } else { 0 }
    }

    fn open(&self, device: &str, ring_bytes: u64, _mode: Mode, _by: By) -> Result<Box<dyn Writer>, CaptureError> {
        self.does.step("opening")?;
        let (ring, half) = ring("played", ring_bytes)?;
        self.halves.lock().unwrap().push_back(half);
        let lingers = self.lingers.lock().unwrap().take();
        let does = self.does.clone();
        Ok(Box::new(Played {
            ring,
            name: device.into(),
            does,
            promiscuous: AtomicBool::new(false),
            lingers: Mutex::new(lingers),
            _alive: Arc::clone(&self.alive),
        }))
    }
}

impl Writer for Played {
    fn device(&self) -> Device {
        let link_type = [("bare0", 101), ("odd0", 104)].into_iter().find(|(name, _)| *name == self.name);
        let link_type = link_type.map_or(1, |(_, number)| number);
        Device { name: self.name.clone(), index: 1, link_type, mtu: 1500, how: "by a test".into(), copied: true }
    }
    fn geometry(&self) -> Geometry {
        self.ring.geometry()
    }
    fn areas(&self) -> Areas<BorrowedFd<'_>> {
        self.ring.areas()
    }
    fn set(&self, expressions: &[Expression]) -> Result<(), CaptureError> {
        self.does.sets.fetch_add(1, Ordering::SeqCst);
        let slow = self.does.slow.lock().unwrap().take_if(|slow| slow.device == self.name);
        if let Some(slow) = slow {
            slow.says.send(()).unwrap();
            slow.goes_on.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        self.does.step("setting")?;
        let programs = expressions.iter().filter_map(|expression| expression.program.as_ref());
        self.does
            .blocks
            .store(programs.map(|program| (program.blocks().len() as u32).saturating_sub(2)).sum(), Ordering::SeqCst);
        self.ring.set(expressions);
        Ok(())
    }
    fn grace(&self) -> fn() {
        || WAITED.set(WAITED.get() + 1)
    }
    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError> {
        if wanted {
            self.does.step("becoming promiscuous")?;
        }
        let was = self.promiscuous.swap(wanted, Ordering::SeqCst);
        self.does.promiscuous.fetch_add(i32::from(wanted) - i32::from(was), Ordering::SeqCst);
        Ok(())
    }
    fn arm(&self, bits: u64) {
        self.ring.arm(bits);
    }
    fn bell(&self) -> BorrowedFd<'_> {
        self.ring.bell()
    }
    fn rung(&self) -> u64 {
        self.ring.rung()
    }
    fn gone(&self) -> bool {
        self.does.gone.load(Ordering::SeqCst)
    }
    fn statistics(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

pub(crate) fn player() -> (Player, CaptureRegistry) {
    let player = Player::default();
    let registry = CaptureRegistry::new(Box::new(player.clone())).unwrap();
    (player, registry)
}

pub(crate) fn capture_request() -> CaptureRequest {
    CaptureRequest { device: "played0".into(), ring_bytes: 1 << 20, ..CaptureRequest::default() }
}

pub(crate) fn first_byte(byte: u8) -> Vec<Instruction> {
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    vec![at(0x30, 0, 0, 0), at(0x15, 0, 1, byte.into()), at(0x06, 0, 0, 0x40000), at(0x06, 0, 0, 0)]
}

pub(crate) fn publish(half: &mut Copying, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        half.batch(|publisher| {
            let mut bytes = [number as u8 % 4; 60];
            bytes[8..16].copy_from_slice(&number.to_le_bytes());
            let flags = if number % 2 == 1 { SlotFlags::OUTBOUND } else { SlotFlags::default() };
            let hash = (number as u32).wrapping_mul(0x9e37_79b9);
            let time = capture::clock::monotonic();
            publisher.publish(Facts { wire: 60, time, flags, hash, ..Facts::default() }, &bytes);
        });
    }
}

/// Waits until `is_so` is true; `what` says what failed if it never is.
#[track_caller]
pub(crate) fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn take(reader: &mut CaptureReader) -> Vec<u64> {
    let (mut got, mut to) = (Vec::new(), [0; 100]);
    while let Found::Packet(packet) = reader.look() {
        if reader.take_copy(&packet, &mut to) == Some(60) {
            got.push(u64::from_le_bytes(to[8..16].try_into().unwrap()));
        }
    }
    got
}

std::thread_local! {
    /// How often this thread waited for packets under way.
    pub(crate) static WAITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

//! Schedulers of a transmitter: which flow sends the next frame. Plain data structures on a clock that the caller passes in;
//! no threads, no I/O, no real clock.
//!
//! A driver says which flows have frames waiting, asks [`Scheduler::next`] before each frame, and says with
//! [`Scheduler::charge`] how long the frame takes on the wire ([`Wire`] calculates that). A decision has three tiers:
//!
//! 1. **Guarantees** (`edf`), after *Atropos*, the scheduler of the Nemesis system (Leslie et al., *The Design and
//!    Implementation of an Operating System to Support Distributed Multimedia Applications*, 1996; Black et al., *Protocol
//!    Implementation in a Vertically Structured Operating System*, 1997). A flow has a slice of wire time in each period.
//!    Among the flows with time left, the flow whose period ends first sends. A frame that runs over the slice is charged
//!    to the next period, therefore a flow gets its share exactly, although frames cannot be cut.
//! 2. **Leftover time** (`users`, `fair`): users share it by weight, however many flows each has. Within a user's part,
//!    fair flows share by weight, and guaranteed flows with slack that have used up their slices.
//!    This is weighted fair queueing by start times (Goyal, Vin, Cheng, *Start-time Fair Queuing*, 1996).
//! 3. **Background**: flows that send only when no other flow may, shared among users and their flows as above.
//!
//! A guarantee holds because `admission` refuses more than a part of the wire (95 % unless told otherwise), and because an
//! idle flow loses time as it passes: a flow that wakes late in its period cannot burst at the cost of others (after the
//! constant bandwidth server of Abeni and Buttazzo, 1998; `edf` has the rule).
//!
//! A decision takes O(log n) comparisons, and allocates no memory after a flow was admitted. The start of a period
//! costs one such step for each flow in it, in the first decision after it. Sums are integers that carry remainders
//! along, so they do not drift. Start reading in [`Scheduler`].

#![forbid(unsafe_code)]

mod admission;
mod clock;
mod edf;
mod fair;
mod guarantee;
mod heap;
mod scheduler;
mod users;
mod wire;

pub use admission::Refusal;
pub use guarantee::{Class, Guarantee, GuaranteeError, LONGEST_PERIOD_NS, WHOLE};
pub use scheduler::{Choice, How, Options, Scheduler, Usage};
pub use users::User;
pub use wire::Wire;

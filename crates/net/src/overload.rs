//! The limit of receive work: a flooded flow or a slow application does not take other flows' time.
//!
//! Once the thread has found a packet's flow, the copy into the channel remains, and this limit saves that copy. The
//! thread counts the receive work of each flow over a window of [`OVERLOAD_WINDOW`], batch by batch. Further packets of
//! a flow beyond its allowance are dropped before the copy in this window, with the reason [`Drop::Overload`]. Finding the
//! flow was work, too, and is charged.
//!
//! The limit only holds if other flows wait:
//! - The thread had no idle time for a whole window. A thread with idle time has work left over for all, so it limits no flow.
//! - Another flow received or sent in this window. A flow alone is never limited.
//!
//! The allowance comes from the previous window. The limit keeps room for each flow that used little in it,
//! [`OVERLOAD_ROOM`] times its use: some of its packets may have been lost in the device's queue.
//! - Sending has this room, at most half of the window. The rest, divided by the number of flows, is the equal part.
//! - A flow that used less than 1/[`OVERLOAD_ROOM`] of the equal part has this room.
//! - The other flows divide the remaining time: each gets at least the equal part.
//!
//! Packets between flows of this host are not limited here: their senders wait for their turns (`transmit.rs`). The
//! cost of a packet and of a window does not depend on the number of flows: the thread only keeps sums.
//!
//! [`Drop::Overload`]: buffer::flow::Drop::Overload

use crate::limits::{OVERLOAD_ROOM, OVERLOAD_WINDOW};

/// A flow's receive work in one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// The number of the window. 0: none yet.
    window: u64,
    ns: u64,
}

/// The window of an interface, and the allowance that follows from the previous one.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The number of the window: an account of an earlier one is empty in this one.
    window: u64,
    /// When it began, ns.
    begun: u64,
    /// Flows that received or sent in it.
    active: u64,
    /// Flows that used more than `mark` in it.
    big: u64,
    /// Receive work of all other flows in it, ns.
    small_ns: u64,
    /// Time for sending in it, ns.
    sending_ns: u64,
    /// No further room is kept for a flow with more receive work than this, ns.
    mark: u64,
    /// The allowance of receive work of a flow in this window, ns.
    allowance: u64,
    /// When the thread was last idle, ns.
    idle: u64,
    /// Whether the thread is idle until the next turn.
    rests: bool,
    /// Whether the thread was busy for a whole window.
    is_saturated: bool,
}

impl Default for Overload {
    fn default() -> Overload {
        Overload {
            window: 1,
            begun: 0,
            active: 0,
            big: 0,
            small_ns: 0,
            sending_ns: 0,
            mark: OVERLOAD_WINDOW / OVERLOAD_ROOM,
            allowance: OVERLOAD_WINDOW,
            idle: 0,
            rests: true,
            is_saturated: false,
        }
    }
}

impl Overload {
    /// A turn begins.
    pub(crate) fn turn(&mut self, now: u64) {
        if std::mem::take(&mut self.rests) {
            self.idle = now;
        }
        self.is_saturated = now.saturating_sub(self.idle) >= OVERLOAD_WINDOW;
        if now.saturating_sub(self.begun) >= OVERLOAD_WINDOW {
            self.begin_window(now);
        }
    }

    /// The thread is idle until the next turn.
    pub(crate) fn rest(&mut self) {
        self.rests = true;
    }

    fn begin_window(&mut self, now: u64) {
        let keep = |ns: u64, most: u64| ns.saturating_mul(OVERLOAD_ROOM).min(most);
        let room = OVERLOAD_WINDOW - keep(self.sending_ns, OVERLOAD_WINDOW / 2);
        let equal = room / self.active.max(1);
        let rest = room - keep(self.small_ns, room);
        self.allowance = (rest / self.big.max(1)).max(equal);
        self.mark = equal / OVERLOAD_ROOM;
        self.window += 1;
        self.begun = now;
        (self.active, self.big, self.small_ns, self.sending_ns) = (0, 0, 0, 0);
    }

    /// A flow receives or sends in this window.
    pub(crate) fn touch(&mut self, account: &mut Account) {
        if account.window != self.window {
            *account = Account { window: self.window, ns: 0 };
            self.active += 1;
        }
    }

    /// Charges receive work to a flow, ns.
    pub(crate) fn charge(&mut self, account: &mut Account, ns: u64) {
        self.touch(account);
        let before = account.ns;
        account.ns = before.saturating_add(ns);
        if before > self.mark {
            return;
        }
        if account.ns > self.mark {
            self.big += 1;
            self.small_ns = self.small_ns.saturating_sub(before);
        } else {
            self.small_ns += ns;
        }
    }

    /// The thread spent `ns` on sending.
    pub(crate) fn sent_for(&mut self, ns: u64) {
        self.sending_ns = self.sending_ns.saturating_add(ns);
    }

    /// Whether this flow is beyond its allowance, while other flows wait.
    pub(crate) fn is_over(&self, account: &Account) -> bool {
        self.is_saturated && self.active > 1 && account.window == self.window && account.ns >= self.allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs windows of a thread that is never idle. In each, flow `n` wants `wants[n]` ms in steps of 0.1 ms, and gets
    /// as much as the limit allows. Returns the work of each in the last window, in 0.1 ms.
    fn last_window(wants: &[u64], sending: u64) -> Vec<u64> {
        let (mut overload, mut accounts) = (Overload::default(), vec![Account::default(); wants.len()]);
        let mut got = Vec::new();
        for window in 0..10 {
            overload.turn(window * OVERLOAD_WINDOW);
            overload.sent_for(sending * MS);
            got = vec![0; wants.len()];
            for step in 0..100 {
                for (flow, account) in accounts.iter_mut().enumerate() {
                    if step < wants[flow] * 10 && !overload.is_over(account) {
                        overload.charge(account, MS / 10);
                        got[flow] += 1;
                    }
                }
            }
        }
        got
    }

    #[test]
    fn allowances_are_equal_where_all_want_more_and_unused_work_goes_to_the_others() {
        let check = |wants: &[u64], sending, expected: &[u64]| {
            assert_eq!(last_window(wants, sending), expected, "{wants:?} ms, {sending} ms to send");
        };
        check(&[10, 10], 0, &[50, 50]);
        check(&[10, 10, 10, 10], 0, &[25, 25, 25, 25]);
        // A flow that wants little keeps room for four times as much.
        check(&[10, 1], 0, &[60, 10]);
        check(&[10, 1, 0], 0, &[60, 10, 0]);
        check(&[10, 10, 1, 1], 0, &[25, 25, 10, 10]);
        check(&[10, 4], 0, &[50, 40]);
        // Sending keeps at most half of the time.
        check(&[10, 10], 1, &[30, 30]);
        check(&[10, 10], 9, &[25, 25]);
        // There is no other flow.
        check(&[10], 0, &[100]);
        check(&[10], 9, &[100]);
        check(&[0, 10], 9, &[0, 100]);
    }

    #[test]
    fn a_flow_that_only_sends_keeps_room_for_its_frames() {
        for (sending, allowance) in [(0, 10), (1, 6), (3, 5), (9, 5)] {
            let (mut overload, mut accounts) = (Overload::default(), [Account::default(); 2]);
            for window in 0..3 {
                overload.turn(window * OVERLOAD_WINDOW);
                overload.charge(&mut accounts[0], allowance * MS);
                overload.touch(&mut accounts[1]);
                overload.sent_for(sending * MS);
            }
            assert!(overload.is_over(&accounts[0]), "{sending} ms to send");
            accounts[0].ns -= 1;
            assert!(!overload.is_over(&accounts[0]), "{sending} ms to send");
        }
    }

    #[test]
    fn many_small_flows_do_not_starve_a_large_one() {
        let (mut overload, mut large) = (Overload::default(), Account::default());
        let mut small = vec![Account::default(); 1000];
        for (window, allowance) in [(0, 10), (1, 6), (2, 6)] {
            overload.turn(window * OVERLOAD_WINDOW);
            assert_eq!(overload.allowance, allowance * MS);
            overload.charge(&mut large, 9 * MS);
            small.iter_mut().for_each(|account| overload.charge(account, 1000));
        }
    }

    #[test]
    fn a_thread_with_idle_time_limits_no_flow() {
        let (mut overload, mut accounts) = (Overload::default(), [Account::default(); 2]);
        let mut is_over = |overload: &mut Overload, now: u64| {
            overload.turn(now);
            accounts.iter_mut().for_each(|account| overload.charge(account, 8 * MS));
            overload.is_over(&accounts[0])
        };
        let seen: Vec<_> = (0..4).map(|window| is_over(&mut overload, window * OVERLOAD_WINDOW)).collect();
        assert_eq!(seen, [false, true, true, true]);
        // It sleeps only for a moment, or for long.
        for sleep in [1, 100 * OVERLOAD_WINDOW] {
            overload.rest();
            let begin = overload.begun + OVERLOAD_WINDOW + sleep;
            let seen: Vec<_> = (0..3).map(|window| is_over(&mut overload, begin + window * OVERLOAD_WINDOW)).collect();
            assert_eq!(seen, [false, true, true], "{sleep} ns");
        }
    }
}

//! One suite that checks every device against [`Receive`](driver::Receive) and [`Transmit`](driver::Transmit).
//!
//! - [`bed`] — the setting of a check: sends frames to a device, and observes those that it sends.
//! - [`devices`] — the devices, and their missing abilities with the reasons.
//! - [`frames`] — distinguishable frames.
//! - [`receiving`], [`sending`], [`coming_and_going`] — the checks.
//!
//! To add a device: a function in `devices.rs`, and a line in `conformance!` below.

mod bed;
mod coming_and_going;
mod devices;
mod frames;
mod receiving;
mod sending;

/// A test for each check and device.
macro_rules! conformance {
    ($($device:ident),+; $($group:ident: $($check:ident),+;)+) => {
        conformance!(@devices [$($device),+] { $($group: $($check),+;)+ });
    };
    (@devices [$($device:ident),+] $checks:tt) => { $(conformance!(@device $device $checks);)+ };
    (@device $device:ident { $($group:ident: $($check:ident),+;)+ }) => {
        mod $device {
            $($(
                #[test]
                fn $check() {
                    super::bed::run(super::devices::$device, super::$group::$check);
                }
            )+)+
        }
    };
}

conformance! {
    af_packet, af_packet_at_once, af_xdp, af_xdp_generic, tap, loopback;
    receiving:
        every_size_arrives_whole,
        the_largest_frames_arrive,
        tags_are_where_they_were,
        both_directions_are_seen,
        everything_is_accounted_for,
        only_what_the_filter_wants_comes,
        frames_are_cut_where_the_filter_says,
        a_slow_reader_loses_exactly_what_is_counted,
        after_stop_nothing_comes,
        waiting_ends,
        times_go_forward;
    sending:
        every_size_is_sent_whole,
        tags_are_sent_as_they_are,
        what_does_not_fit_is_counted,
        many_frames_are_sent_in_order;
    coming_and_going:
        a_device_that_was_down_goes_on,
        a_device_that_was_removed_ends,
        a_device_may_be_down_at_first,
        another_mtu_is_no_interruption,
        others_frames_come_as_long_as_they_are_wanted;
}

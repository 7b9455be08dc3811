//! The replacement of a kernel socket by an end that the host serves.

use crate::ends::ours;
use crate::kernel::{call, close, copy_option, inode, quietly};
use crate::{epoll, options};
use libc::c_int;
use socket_calls::Setting;

/// Options of a kernel socket that a unix socket also has.
const COMMON: [c_int; 6] =
    [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_LINGER, libc::SO_REUSEADDR, libc::SO_BROADCAST, libc::SO_OOBINLINE];

/// Replaces `fd` by `end`, with the flags and options of `fd`. `false`: the kernel refuses.
pub(crate) fn replace(fd: c_int, end: c_int) -> bool {
    quietly(|| {
        let before = inode(fd);
        let fcntl = |command: c_int, of: c_int, value: isize| {
            call(libc::SYS_fcntl, [of as usize, command as usize, value as usize])
        };
        let status = fcntl(libc::F_GETFL, fd, 0);
        if status & libc::O_NONBLOCK as isize != 0 {
            fcntl(libc::F_SETFL, end, status & (libc::O_NONBLOCK | libc::O_ASYNC) as isize);
        }
        let is_kernels = !ours(fd).is_ours();
        COMMON.iter().for_each(|name| copy_option(fd, end, libc::SOL_SOCKET, *name));
        // Those of an earlier end are the host's already.
        let chosen = if is_kernels { options::all_of_kernel(fd) } else { [None; Setting::ALL.len()] };
        let is_closed_on_exec = fcntl(libc::F_GETFD, fd, 0) & libc::FD_CLOEXEC as isize != 0;
        let flags = if is_closed_on_exec { libc::O_CLOEXEC } else { 0 };
        let done = call(libc::SYS_dup3, [end as usize, fd as usize, flags as usize]) >= 0;
        close(end);
        if !done {
            return false;
        }
        let now = inode(fd);
        for (setting, value) in Setting::ALL.into_iter().zip(chosen) {
            if let Some(value) = value {
                options::tell(now, setting, value);
            }
        }
        options::tell_linger(fd, now);
        epoll::carry_over(fd, before);
        true
    })
}

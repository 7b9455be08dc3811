//! A packet socket, as receivers and senders share it: opening, binding, memberships, and a removed device.
//!
//! It is made for no protocol, so that it receives nothing at first. Binding lets frames in, after filter and ring are
//! set up: no frame arrives that was not asked for.

use crate::error::Error;
use crate::sys::{check, ioctl, set_option, socket};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// All protocols, in network byte order as the kernel wants them.
pub(crate) const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// A packet socket (packet(7)) of one device, which receives and sends whole frames.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: u32,
}

impl PacketSocket {
    /// A socket for the device with this number in this thread's network namespace. It receives nothing yet.
    pub fn new(index: u32) -> Result<PacketSocket, Error> {
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(Error::doing("open a packet socket"))?;
        Ok(PacketSocket { fd, index })
    }

    /// Number of its device.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Binds it to its device; frames of `protocol` (in network byte order, 0: none) arrive from now on.
    pub(crate) fn bind(&self, protocol: u16) -> io::Result<()> {
        let address = address(self.index, protocol);
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: an address of that many bytes.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })?;
        Ok(())
    }

    /// Binds it for sending only.
    pub fn bind_to_send(&self) -> Result<(), Error> {
        self.bind(0).map_err(Error::doing("bind a packet socket"))
    }

    /// Makes the device receive frames for other hosts too, as long as this socket is open.
    pub fn become_promiscuous(&self) -> io::Result<()> {
        self.join(libc::PACKET_MR_PROMISC)
    }

    /// Makes the device receive frames for every multicast group, as long as this socket is open.
    pub fn join_all_groups(&self) -> io::Result<()> {
        self.join(libc::PACKET_MR_ALLMULTI)
    }

    fn join(&self, kind: i32) -> io::Result<()> {
        let membership =
            libc::packet_mreq { mr_ifindex: self.index as i32, mr_type: kind as u16, mr_alen: 0, mr_address: [0; 8] };
        set_option(self.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// Whether its device still exists. After a removal the answer stays no, even if a device with that name comes back.
    pub(crate) fn device_is_there(&self) -> io::Result<bool> {
        let mut address = address(0, 0);
        let mut length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: room for that many bytes.
        check(unsafe { libc::getsockname(self.fd.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &mut length) })?;
        Ok(address.sll_ifindex > 0)
    }

    /// The device's present name and its flags (IFF); `None` if there is no such device.
    pub(crate) fn look_up(&self) -> io::Result<Option<(String, i32)>> {
        // SAFETY: integers; zeroes are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = self.index as i32;
        // The first command fills in the name that the second one uses.
        for command in [libc::SIOCGIFNAME, libc::SIOCGIFFLAGS] {
            // SAFETY: both take an ifreq.
            match unsafe { ioctl(self.as_fd(), command, &mut request) } {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        // SAFETY: the second command filled this field in.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let name = request.ifr_name.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect::<Vec<u8>>();
        Ok(Some((String::from_utf8_lossy(&name).into_owned(), i32::from(flags))))
    }

    /// Sends one frame unchanged; blocks until the kernel took it. For a few frames.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let address = address(self.index, 0);
        let length = size_of::<libc::sockaddr_ll>() as u32;
        let (fd, bytes) = (self.fd.as_raw_fd(), frame.as_ptr().cast());
        // SAFETY: as many bytes as the frame has, and an address.
        let sent = unsafe { libc::sendto(fd, bytes, frame.len(), 0, std::ptr::from_ref(&address).cast(), length) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Attaches a filter, replacing the one before: it decides which frames arrive, and cuts them to the length it returns.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let bytes = size_of::<libc::sock_fprog>() as u32;
    // SAFETY: the kernel reads `len` instructions, which are there, and writes none.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            bytes,
        )
    })?;
    Ok(())
}

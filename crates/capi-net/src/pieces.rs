//! Buffers in pieces, as described by `struct iovec`.

use libc::iovec;
use std::io;
use std::marker::PhantomData;

/// Most pieces, as in the kernel (UIO_MAXIOV).
const MOST: usize = 1024;

/// The rest of a buffer in pieces. `T` says whether the library writes the bytes or reads them: [`In`] or [`Out`].
#[derive(Debug)]
pub(crate) struct Pieces<'a, T> {
    left: Vec<(*mut u8, usize)>,
    is: PhantomData<(&'a mut [u8], T)>,
}

#[derive(Debug)]
pub(crate) struct In;

#[derive(Debug)]
pub(crate) struct Out;

impl<T> Pieces<'_, T> {
    /// The pieces that C describes, without the empty ones.
    ///
    /// # Safety
    ///
    /// `pieces` has `count` elements, each with as many bytes as it says. The bytes stay valid while the result is
    /// used, readable for [`Out`] and writable for [`In`].
    pub(crate) unsafe fn new(pieces: *const iovec, count: usize) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if pieces.is_null() && count != 0 || count > MOST {
            return Err(invalid());
        }
        let (mut left, mut total) = (Vec::with_capacity(count), 0_usize);
        for at in 0..count {
            // SAFETY: the caller's word.
            let piece = unsafe { pieces.add(at).read_unaligned() };
            total = total.saturating_add(piece.iov_len);
            if piece.iov_base.is_null() && piece.iov_len != 0 || total > isize::MAX as usize {
                return Err(invalid());
            }
            if piece.iov_len != 0 {
                left.push((piece.iov_base.cast(), piece.iov_len));
            }
        }
        // The first one is at the end.
        left.reverse();
        Ok(Pieces { left, is: PhantomData })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.left.iter().map(|(_, len)| len).sum()
    }

    /// Gives one run after the other to `copy`, with the run's offset among `most` bytes. Gives the number of bytes.
    fn each(&mut self, most: usize, copy: &mut dyn FnMut(usize, *mut u8, usize)) -> usize {
        let mut done = 0;
        while let Some((at, len)) = self.left.last_mut()
            && done < most
        {
            let run = (*len).min(most - done);
            copy(done, *at, run);
            // SAFETY: within the piece, or at its end.
            *at = unsafe { at.add(run) };
            *len -= run;
            done += run;
            if *len == 0 {
                self.left.pop();
            }
        }
        done
    }
}

impl Pieces<'_, In> {
    /// Copies bytes into the rest. Gives how many there was room for.
    pub(crate) fn copy_in(&mut self, bytes: &[u8]) -> usize {
        self.each(bytes.len(), &mut |from, at, run| {
            // SAFETY: `run` bytes of a piece, which may be written, as `new`'s caller promised.
            unsafe { std::ptr::copy_nonoverlapping(bytes[from..from + run].as_ptr(), at, run) };
        })
    }
}

impl Pieces<'_, Out> {
    /// Copies the next bytes out. Gives their number.
    pub(crate) fn copy_out(&mut self, to: &mut [u8]) -> usize {
        self.each(to.len(), &mut |from, at, run| {
            // SAFETY: `run` bytes of a piece, which may be read, as `new`'s caller promised.
            unsafe { std::ptr::copy_nonoverlapping(at.cast_const(), to[from..from + run].as_mut_ptr(), run) };
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &mut [u8]) -> iovec {
        iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn bytes_go_through_pieces_of_any_length() {
        for step in 1..=12 {
            let mut text = *b"abcdefghij";
            let (one, rest) = text.split_at_mut(3);
            let described = [piece(one), piece(&mut []), piece(rest)];
            // SAFETY: all of `text`.
            let mut out = unsafe { Pieces::<Out>::new(described.as_ptr(), 3) }.unwrap();
            assert_eq!(out.len(), 10);
            let mut got = vec![];
            while !out.is_empty() {
                let mut some = vec![0; step];
                let count = out.copy_out(&mut some);
                got.extend(&some[..count]);
            }
            assert_eq!((got.as_slice(), out.copy_out(&mut [0])), (&b"abcdefghij"[..], 0));

            let (mut first, mut second) = ([0; 4], [0; 3]);
            let described = [piece(&mut first), piece(&mut second)];
            // SAFETY: all of both.
            let mut into = unsafe { Pieces::<In>::new(described.as_ptr(), 2) }.unwrap();
            let taken: usize = got.chunks(step).map(|some| into.copy_in(some)).sum();
            assert_eq!((taken, &first, &second), (7, b"abcd", b"efg"));
        }
    }

    #[test]
    fn what_c_can_do_wrong_is_refused() {
        let nothing = iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
        let huge = iovec { iov_base: 8 as *mut _, iov_len: usize::MAX };
        for (pieces, count) in [(std::ptr::null(), 1), (&raw const nothing, 1), (&raw const huge, 1), (&nothing, 1025)]
        {
            // SAFETY: it reads no byte.
            assert!(unsafe { Pieces::<Out>::new(pieces, count) }.is_err());
        }
        // SAFETY: there are no pieces.
        assert!(unsafe { Pieces::<In>::new(std::ptr::null(), 0) }.unwrap().is_empty());
    }
}

//! Byte locks of the operating system: `F_OFD_SETLK` and `F_OFD_GETLK`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn request(byte: u64, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte as libc::off_t,
        l_len: 1,
        // The kernel demands zero for open-file-description locks.
        l_pid: 0,
    }
}

fn control(fd: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open for as long as the borrow lives. The structure is the one
        // that these commands take, and lives until the call returns.
        let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut *lock) };
        if result >= 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Takes the exclusive lock of a byte for this open file description. False if another one has it.
pub(crate) fn try_lock(fd: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
    let mut lock = request(byte, libc::F_WRLCK);
    match control(fd, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

pub(crate) fn unlock(fd: BorrowedFd<'_>, byte: u64) -> io::Result<()> {
    control(fd, libc::F_OFD_SETLK, &mut request(byte, libc::F_UNLCK))
}

/// Whether another open file description has a lock of the byte.
pub(crate) fn held_by_other(fd: BorrowedFd<'_>, byte: u64) -> io::Result<bool> {
    let mut lock = request(byte, libc::F_WRLCK);
    control(fd, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

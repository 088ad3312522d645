//! The name of the system's user that runs this process.

use std::ffi::CStr;

/// Room for an entry of the user database, which is longer than any name and path.
const ENTRY_BYTES: usize = 16 << 10;

/// The superuser of a database that this user starts, if no parameter says otherwise.
pub fn superuser() -> String {
    name().unwrap_or_else(|| "braid".to_string())
}

/// `None` if the system has no name for the user.
fn name() -> Option<String> {
    let mut buffer = vec![0; ENTRY_BYTES];
    // SAFETY: a `passwd` is integers and pointers, for which zeros are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer is as long as the call is told.
    let failed = unsafe {
        libc::getpwuid_r(
            libc::geteuid(),
            &mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        )
    };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call has found an entry, so its name is a C string in `buffer`, which lives.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    name.to_str().ok().map(str::to_string)
}

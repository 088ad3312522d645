//! What is said to the person at the terminal. `println!` panics when nobody reads any more, as
//! behind `| head`: an instance must not end by that, nor `verify` forget its exit code. There is
//! nobody who could be told.

/// A line on standard output, if somebody reads it.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($what)*);
    }};
}

/// A line on standard error, if somebody reads it.
macro_rules! complain {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($what)*);
    }};
}

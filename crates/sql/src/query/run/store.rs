//! Rows kept to be read again: in memory up to `work_mem`, beyond that in a temporary file.

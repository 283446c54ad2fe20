/* turnwheel: an embeddable, durable agent runtime. The C interface, generated from the crate `ffi`.
 *
 * Every function
 *   returns a tw_status: 0 (TW_OK), an outcome (1 to 99), or an error (from 100; tw_status_name names it). Outputs are
 *   written when the status is no error. `error` is last and may be NULL; else it gets an owned tw_error on an error.
 *
 * Pointers
 *   *owned*: given by a function that says so, ended by tw_<type>_free. *shared*: counted, tw_<type>_retain and
 *   tw_<type>_release. *borrowed*: the comment says until when. Free and release accept NULL, never fail, never wait, and
 *   may be called in any order: what depends on something keeps it alive. Handles are no addresses: one that was
 *   released, is of another type or was never given out is INVALID_HANDLE, and never undefined behaviour.
 *
 * Text
 *   goes in as a tw_str, a view of UTF-8 that is copied where it is kept; TW_STR("...") makes one of a literal. It comes
 *   out as a borrowed tw_str or an owned tw_buf. Options, messages, events and results are JSON. An empty text stands
 *   for no options.
 *
 * Callbacks
 *   are a function, its `user_data`, and `drop`, which frees `user_data` exactly once, also when the registration
 *   failed. They run on the runtime's thread. Every function may be called inside one, but waiting for what runs on that
 *   thread is SELF_WAIT. They must not throw, longjmp or end their thread.
 *
 * Threads
 *   Any thread may call. A call from another thread than the runtime's is carried out there and waited for; it must not
 *   be made while holding a lock that a callback needs. Answers (tw_next_*, tw_call_*, tw_answer_*, tw_reply_*) wait for
 *   nobody. In the child of a fork every handle is FORKED; make a runtime of its own there.
 *
 * A panic of the library is the status PANIC; its runtime can then only be freed. Please report it.
 */

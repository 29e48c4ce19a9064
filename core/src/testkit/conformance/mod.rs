//! The store port's conformance suite: one function per promise of `crate::store`, each given a store without content.
//!
//! A store's own test calls `every_promise`, or takes `PROMISES` and runs them one by one. A store that does its work
//! elsewhere is wrapped so that `call` waits for the answer.

mod commits;
mod dead_letters;
mod ended;
mod loads;
mod log;
mod operations;
mod owner;
mod records;
mod retention;
mod samples;
mod slots;

use alloc::boxed::Box;

use super::Store;

/// One thing that a store promises.
#[derive(Clone, Copy)]
pub struct Promise {
    /// What it promises, as a sentence in snake case.
    pub name: &'static str,
    /// Panics when the store, which holds nothing yet, breaks the promise.
    pub check: fn(&mut dyn Store),
}

macro_rules! promises {
    ($($area:ident: $($name:ident),+;)+) => {
        &[$($(Promise { name: concat!(stringify!($area), "::", stringify!($name)), check: $area::$name }),+),+]
    };
}

/// Every promise.
pub const PROMISES: &[Promise] = promises! {
    slots:
        a_store_answers_a_ping,
        a_fresh_slot_has_no_owner,
        a_take_raises_the_epoch_and_shows_the_owner,
        a_late_take_is_told_who_was_quicker,
        a_second_owner_shuts_out_the_first,
        a_fence_is_epoch_and_token,
        a_renewal_changes_the_beat_and_nothing_else_does,
        a_released_slot_has_no_owner_and_keeps_its_epoch,
        slots_have_owners_of_their_own;
    commits:
        a_commit_happens_whole_and_in_order,
        a_commit_of_nothing_is_a_commit,
        a_commit_that_fails_changes_nothing,
        an_append_over_another_changes_nothing,
        a_fenced_commit_changes_nothing,
        a_settling_tells_which_commits_are_there,
        a_settling_shuts_out_the_late_original,
        a_settling_leaves_the_slot_with_its_owner,
        a_settling_remembers_what_later_commits_overtook,
        a_number_counts_within_its_epoch,
        a_settling_of_another_is_fenced,
        acknowledged_commits_that_are_there_pass,
        a_commit_that_was_overtaken_names_what_it_knew,
        a_commit_after_a_lost_suffix_is_refused,
        a_renewal_after_a_lost_suffix_is_refused;
    loads:
        a_slot_without_content_loads_as_one_page,
        a_load_gives_everything_as_written,
        a_load_tells_the_latest_time_of_any_commit,
        a_load_survives_a_new_owner,
        a_load_in_pages_gives_each_record_once,
        queues_are_loaded_alone,
        slots_hold_content_of_their_own,
        tenants_share_names_without_meeting;
    records:
        a_queue_is_set_whole,
        a_partition_is_set_whole,
        a_cursor_is_set_whole,
        a_dropped_cursor_is_gone_alone,
        a_subscription_is_set_whole,
        a_dropped_subscription_is_gone_alone,
        dropping_what_is_not_there_is_nothing;
    log:
        messages_come_back_byte_for_byte,
        a_head_tells_bytes_and_hashes,
        a_log_is_loaded_down_to_a_time,
        a_log_in_pages_gives_each_head_once,
        several_logs_are_answered_in_order,
        a_read_takes_parts_of_segments,
        several_reads_are_answered_in_order,
        a_read_of_what_is_not_there_is_empty,
        a_read_leaves_out_what_is_deleted,
        a_full_segment_comes_back_whole;
    dead_letters:
        a_dead_letter_is_read_by_its_id,
        a_dead_letter_loads_as_its_head,
        a_dead_letter_can_have_no_message,
        a_dropped_dead_letter_is_gone_alone;
    operations:
        traces_are_found_by_message,
        traces_are_found_by_name_newest_first,
        names_of_traces_are_counted,
        traces_outlive_their_queue,
        activity_is_merged_into_buckets,
        dropped_activity_goes_oldest_first;
    ended:
        an_ended_queue_hides_all_it_had,
        an_ended_queue_makes_room_for_its_name,
        a_trim_goes_in_steps_until_nothing_remains,
        a_trim_of_an_empty_queue_removes_it,
        a_trim_leaves_other_queues_alone,
        a_trim_needs_the_fence;
    retention:
        extents_are_given_oldest_first_up_to_a_limit,
        a_trim_removes_messages_and_leaves_younger_hashes,
        a_log_goes_on_where_all_of_it_was_deleted,
        a_load_tells_what_is_left_to_trim,
        a_trim_below_watermarks_needs_the_fence,
        a_dropped_partition_is_gone_with_its_cursors,
        history_adds_up_and_outlives_its_queue,
        a_partition_with_messages_in_a_failed_commit_is_as_it_was;
};

/// Checks every promise, each on a store of its own that `make` gives.
pub fn every_promise(make: &mut dyn FnMut() -> Box<dyn Store>) {
    for promise in PROMISES {
        (promise.check)(&mut *make());
    }
}

# ruff: noqa: E501 (a table, one fault a row)
"""The catalogue of faults: what can happen to a run, what its user gets instead, and the tests that do it for real.

`python tests/faults/catalogue.py` writes `README.md` beside this file, which `test_catalogue.py` compares.
"""

from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("README.md")

HEAD = """\
# Faults

What can go wrong in a run, and what its user gets instead. Every row has tests that do the fault for real. This page is
written by `python tests/faults/catalogue.py`; a test compares the two, and looks for every test that is named.

| | fault | outcome | tests |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Fault:
    """A row: group, what happens, what the user gets, and the tests as ``file::test``, files relative to `tests`."""

    group: str
    what: str
    outcome: str
    tests: tuple[str, ...]


DEATHS = "execution/test_dask_deaths.py::test_"
CLUSTER = "execution/test_dask_cluster.py::test_"
PLAIN = "deploy/test_plain_cluster.py::test_"
CHAOS = "deploy/test_chaos.py::test_faults_change_no_bit_and_leave_nothing_behind"
INTERRUPTED = "job/test_interrupted.py::test_"
PANELS = "execution/test_panels.py::test_"
PROCESSES = "execution/test_processes.py::test_"
READ = "readers/test_damage.py::test_"
BAD_INPUT = "readers/test_bad_input.py::test_one_line_that_names_it"
ENGINES = "execution/test_engines.py::test_"
SAVED = "execution/test_checkpoint.py::test_"
DAMAGE = "faults/test_damage.py::test_"
VALUES = "faults/test_values.py::test_"
HOSTILE = "faults/test_untrusted_input.py::test_"
FOLDER = "job/test_folder.py::test_"
FOREIGN = "faults/test_untrusted_folders.py::test_"
SUPERVISED = "selectors/test_supervised_input.py::test_"
KMEANS = "cluster/test_kmeans.py::test_"
SEALED = "faults/test_sealed_stores.py::test_"
SILENT = "faults/test_silent_workers.py::test_"
CHANGING = "faults/test_changing_sources.py::test_"
DISKS = "faults/test_full_disks.py::test_"
SOURCES = "faults/test_sources.py::test_"
INSIDE = "faults/test_outputs_in_sources.py::test_"
UNATTENDED = "faults/test_unattended.py::test_"
OPERATORS = "faults/test_operators.py::test_"
HTTP = "readers/test_http.py::test_"
KERNELS = "faults/test_compiled_kernels.py::test_"
CERTIFICATES = "faults/test_certificates.py::test_"
NTH = "faults/test_io_failures.py::test_the_nth_operation_fails"


def row(group: str, what: str, outcome: str, *tests: str) -> Fault:
    """Return a row."""
    return Fault(group, what, outcome, tests)


FAULTS = (
    row("worker", "killed in the middle of a task", "the same bits; one line says so",
        DEATHS + "killed_workers_do_not_change_the_bits", PLAIN + "worker_killed_in_the_middle_changes_no_bit", CHAOS),
    row("worker", "a task that kills every worker it is given to", "an error that names partition, rows, memory and limit",
        DEATHS + "a_task_that_always_kills_its_worker_is_named"),
    row("worker", "killed many times over (spot machines)", "the same bits, or exit code 75 in our words",
        DEATHS + "rows_lost_with_the_worker_that_held_them_are_sent_again",
        DEATHS + "a_task_that_kills_its_worker_once_is_run_again",
        PLAIN + "two_workers_killed_one_after_the_other_are_exit_75_in_our_words"),
    row("worker", "memory beyond the limit", "refused before the run; if it comes all the same, the error says memory",
        ENGINES + "too_little_memory_is_said_before_anything_is_read", DEATHS + "a_worker_killed_for_its_memory_is_named_so",
        "job/test_memory_limit.py::test_a_limit_that_a_later_pass_exceeds_is_refused_before_the_first"),
    row("worker", "memory that the plan did not foresee", "no process of forty jobs takes more than `plan` says",
        "faults/test_memory.py::test_no_process_takes_more_than_plan_says"),
    row("worker", "paused, or nothing goes on", "no partition done in `stall_timeout`: an error with a table of the workers",
        DEATHS + "a_pass_that_stands_still_is_given_up"),
    row("worker", "stopped, frozen, cut off", "others take over; a worker that is stopped for good ends with its driver",
        CLUSTER + "a_frozen_worker_does_not_answer_for_the_others", INTERRUPTED + "a_killed_run_leaves_no_process_and_resumes",
        "deploy/test_network_namespaces.py::test_job_goes_on_without_the_worker_whose_cable_is_cut", CHAOS),
    row("worker", "frozen for good", "named within 20 seconds; replaced within 60 on a cluster of our own, after `worker_ttl` or a stall elsewhere",
        SILENT + "a_worker_that_freezes_is_named_and_replaced"),
    row("worker", "all frozen when they are asked whether they can write to the output", "waited for as in a pass, then exit code 75; not called unable",
        SILENT + "workers_that_are_all_frozen_are_not_said_to_be_unable_to_write"),
    row("worker", "killed for memory, and none comes back", "the error says memory and limit, not how to start a worker",
        SILENT + "a_cluster_of_our_own_that_is_empty_says_why"),
    row("worker", "native code that never returns", "values that make LAPACK hang never reach it; the stall timeout for others",
        "summaries/test_frequent_directions.py::test_wide_blocks_with_bad_values_do_not_reach_lapack",
        DEATHS + "a_pass_that_stands_still_is_given_up"),
    row("worker", "another version, or no such module", "refused before anything is sent; one table",
        CLUSTER + "other_versions_on_workers_are_refused", DEATHS + "what_workers_cannot_load_is_said",
        PLAIN + "worker_with_another_version_does_not_join"),
    row("worker", "none at all", "an error after `worker_timeout`, exit code 75",
        DEATHS + "no_workers_is_an_error_and_not_a_wait"),
    row("worker", "the last one dies with a result that is being fetched", "an error after `worker_timeout`, exit code 75",
        DEATHS + "a_result_lost_with_the_last_worker_is_not_waited_for"),
    row("worker", "none yet, on a cluster that is scaled by its work", "a task that waits has one started",
        OPERATORS + "a_cluster_that_is_scaled_by_its_work_may_have_no_worker_yet"),
    row("worker", "of other libraries, joining during the run", "an error with its address and versions at its first partition or merge",
        OPERATORS + "a_worker_of_other_libraries_that_joins_late_is_named"),
    row("worker", "other files than the job's process has at the path of the source, or with other times", "refused: the source is named, and what gives all the same",
        OPERATORS + "a_worker_with_files_of_its_own_is_refused"),
    row("worker", "a worker that does not see the source, or the output, joins before or during a run", "one line that names the worker; nothing of it is in the result",
        OPERATORS + "a_worker_without_the_files_is_named"),
    row("worker", "away while its run was killed, and awake in the next one, of other columns", "the features are those of the next one",
        OPERATORS + "a_task_of_an_earlier_run_that_goes_on_late_changes_no_features"),
    row("worker", "`SystemExit` or `KeyboardInterrupt` in a task", "an ordinary error; no worker dies",
        DEATHS + "leaving_inside_a_task_does_not_kill_the_worker"),
    row("cluster", "the scheduler dies, between passes or within", "exit code 75; the same command resumes, also where it is not back yet",
        PLAIN + "lost_scheduler_is_exit_75_and_the_same_command_finishes",
        CLUSTER + "a_scheduler_lost_between_passes_is_named_and_a_closed_client_refused",
        DEATHS + "a_worker_that_dies_when_it_is_asked_for_its_libraries_is_left_out", CHAOS),
    row("cluster", "the driver is killed", "no process is left; the same command resumes",
        INTERRUPTED + "a_killed_run_leaves_no_process_and_resumes"),
    row("cluster", "the driver of a pass in panels of columns is killed or interrupted", "goes on from the last state that is whole; the same bits",
        INTERRUPTED + "a_pass_in_panels_that_was_ended_goes_on_with_the_same_bits", PANELS + "a_pass_that_was_stopped_goes_on_with_the_same_bits",
        PANELS + "a_selector_goes_on_in_panels"),
    row("cluster", "Ctrl-C, SIGTERM, a terminal that is closed (SIGHUP)", "130, 143 or 129 within seconds; what was finished is there",
        INTERRUPTED + "interrupted_runs_say_how_to_resume_and_do",
        INTERRUPTED + "a_signal_while_the_program_is_imported_is_an_orderly_end", PROCESSES + "ctrl_c_ends_a_job_quickly_and_it_resumes"),
    row("cluster", "the driver is suspended for minutes", "it goes on; time in which it was suspended is nobody's silence",
        OPERATORS + "a_driver_that_was_suspended_goes_on", CHAOS),
    row("cluster", "a daemonic parent process", "one line with the cure", PROCESSES + "a_daemonic_process_is_told_what_to_use_instead"),
    row("cluster", "a client or an engine used in a process forked from the one that made it", "refused within 20 seconds, with the cure",
        OPERATORS + "an_engine_in_a_forked_process_is_refused"),
    row("cluster", "a script without a main guard", "the two lines that cure it",
        PROCESSES + "a_script_without_a_main_guard_is_told_the_cure"),
    row("cluster", "an orchestrator starts the task twice", "the second is refused, or reads the finished result",
        INTERRUPTED + "a_second_run_in_the_same_folder_is_refused", "job/test_rerun.py::test_a_second_run_repeats_nothing"),
    row("cluster", "certificates that have expired, keys with a passphrase, TLS that only one side asks for", "one line that says which, and what to make anew; nobody is asked for a passphrase",
        CERTIFICATES + "a_certificate_that_is_not_valid_now_is_said_to_be_so", CERTIFICATES + "a_key_with_a_passphrase_is_refused_and_nobody_is_asked",
        CERTIFICATES + "a_scheduler_without_tls_where_tls_is_asked_for_is_not_called_out_of_reach"),
    row("cluster", "settings of the client have no effect on a scheduler elsewhere", "the manifest has those in effect there",
        CLUSTER + "describe_tells_the_settings_in_effect"),
    row("data", "chunk files are missing", "an error with their number and the first five; `missing_chunks = \"fill\"` reads on",
        READ + "missing_chunks_are_counted_and_the_first_five_named", READ + "a_chunk_that_goes_away_after_the_preflight"),
    row("data", "a chunk is cut off or cannot be decoded", "array, chunk and file are named; reading over a network is tried again",
        READ + "a_chunk_cut_off_is_named_with_its_file", READ + "a_remote_store_that_stumbles_is_read_again"),
    row("data", "a flipped bit, with a checksum", "the same error, with the word checksum",
        READ + "every_flipped_bit_under_a_checksum_is_an_error", "readers/test_parquet.py::test_a_flipped_bit_of_a_page_with_a_checksum_is_an_error",
        READ + "the_error_says_checksum_where_that_is_what_failed"),
    row("data", "a flipped bit in the metadata of a converted store", "an error at opening, or the same names, shape and rows",
        SEALED + "no_flipped_bit_of_the_metadata_changes_what_is_read", SEALED + "names_and_shapes_of_the_attack_are_noticed",
        SEALED + "stores_without_digests_are_read"),
    row("data", "chunk files of a converted store in each other's place", "`verify STORE` says so; it reads every file",
        SEALED + "verify_reads_every_chunk_file", SEALED + "a_store_may_move_and_be_copied"),
    row("data", "any file of a converted store changed or lost, or a whole column", "`verify STORE` names it",
        SEALED + "verify_notices_every_file_that_is_changed_or_lost"),
    row("data", "rows appended to a converted store", "an error at opening with the command that takes them in, `verify STORE --seal`",
        SEALED + "rows_that_were_appended_are_taken_in", SEALED + "a_store_that_was_damaged_before_it_grew_is_not_sealed"),
    row("data", "a name of a column that is there twice", "an error at opening, with the name and both columns",
        SEALED + "a_name_that_is_there_twice_is_an_error_at_opening", BAD_INPUT),
    row("data", "a flipped bit, without a checksum", "cannot be known: one note says that the store has none",
        "readers/test_conformance.py::test_a_note_where_nothing_detects_a_flipped_bit"),
    row("data", "the source changes during the run", "nothing that was made of it is published",
        "job/test_rerun.py::test_a_source_that_changes_during_the_job_is_not_published",
        ENGINES + "a_source_that_is_rewritten_meanwhile_is_noticed",
        "execution/test_panels.py::test_a_source_rewritten_between_two_panels_is_noticed"),
    row("data", "a store of any kind is appended to, shortened or swapped, while read or between kill and resume",
        "the rows as they were, or as they are, or an error",
        CHANGING + "rows_are_appended_while_it_is_read", CHANGING + "it_is_shortened_while_it_is_read",
        CHANGING + "it_is_swapped_while_it_is_read", CHANGING + "it_changes_between_kill_and_resume"),
    row("data", "a source of any format is rewritten, appended to or shortened after the job's process was killed",
        "the result of the rows as they are, to the bit, or an error",
        "faults/test_killed_and_changed.py::test_the_second_run_is_of_the_rows_as_they_are"),
    row("data", "a source is rewritten while `convert` or `partial_fit` reads it, or cut short after it was opened",
        "an error, and no store: of text files too",
        CHANGING + "it_is_swapped_while_it_is_converted", CHANGING + "a_text_file_is_written_anew_while_it_is_converted",
        CHANGING + "it_is_swapped_while_it_is_a_batch_of_a_stream", CHANGING + "it_is_shortened_after_it_was_opened"),
    row("data", "a web server that cannot be reached for a while, or for long", "read again; an error, from which the same command goes on", CHAOS),
    row("data", "a web server that refuses, at a signed address that it redirected to",
        "its answer is named, not damage; the address it redirected to is in no message",
        HTTP + "a_refusal_is_no_damage_and_the_signed_address_of_a_redirection_is_not_shown"),
    row("data", "a web server that sends a page, or forbids, where it has no file", "its other files are read; what is missing is an error, and no fill value",
        HTTP + "a_server_that_has_no_404_has_stores_all_the_same", HTTP + "a_page_in_the_place_of_a_store_is_said_to_be_one",
        HTTP + "a_page_in_the_place_of_a_chunk_is_no_fill_value"),
    row("data", "a web server that is busy for a moment, or sends whole files for parts", "asked again; the part is taken",
        HTTP + "a_server_that_is_busy_for_a_moment_is_asked_again",
        HTTP + "a_server_that_is_out_of_reach_for_five_seconds_is_asked_again",
        HTTP + "parts_of_shards_are_read_where_the_server_sends_whole_files"),
    row("data", "a server that states no versions of its files",
        "the first and last chunk are read again at the end; the manifest says that the source was not watched",
        CHANGING + "a_job_says_whether_its_source_was_watched"),
    row("data", "metadata damaged, huge or zero chunks, too many", "refused before anything is read or reserved",
        BAD_INPUT, "readers/test_bad_input.py::test_too_many_chunks_are_refused_before_the_store_is_listed"),
    row("data", "chunks far away that are taller than a partition", "fetched once by a process, and never out of date",
        "readers/test_tall_chunks.py::test_a_pass_fetches_every_chunk_once",
        "readers/test_tall_chunks.py::test_a_chunk_that_is_rewritten_is_fetched_again"),
    row("data", "a decompression bomb", "not decoded",
        READ + "a_chunk_that_would_expand_far_beyond_its_shape_is_not_decoded",
        HOSTILE + "a_chunk_file_larger_than_its_values_is_not_decoded"),
    row("data", "target of another length, or missing", "both lengths, before any pass",
        "job/test_workflow.py::test_labels_of_another_length_are_refused_before_anything_starts",
        "job/test_supervised.py::test_a_missing_target_is_named_before_anything_is_read"),
    row("data", "NaN and infinity", "partition, row and column are named, or the rows are left out and counted",
        "summaries/test_frequent_directions.py::test_wide_blocks_with_bad_values_do_not_reach_lapack",
        ENGINES + "errors_name_the_partition_and_no_value", ENGINES + "dropped_rows_are_counted"),
    row("data", "objects, text, dates, complex numbers", "refused by name, with what is allowed", BAD_INPUT),
    row("data", "dates that microseconds do not hold, such as the infinite ones of databases", "the first is named, by column and row",
        "prepare/test_tables.py::test_dates_that_microseconds_do_not_hold_are_named"),
    row("data", "a field of a Matrix Market file that begins with a number: 1D5, 1,5, 0x10, 1e5 as a whole number", "its line is named",
        "readers/test_convert.py::test_matrix_market_numbers_are_taken_whole"),
    row("data", "a pipe, a device, or a link to itself, where a file belongs", "refused where it is opened; no pipe is waited for", BAD_INPUT),
    row("data", "a frame of Dask whose partitions are not as it says", "one line",
        "readers/test_dask_frames.py::test_partitions_that_are_not_as_the_frame_says_are_one_line"),
    row("data", "a chunk of a Dask array of more rows than it states, which a partition or a read cuts", "an error that names the chunk; no row is cut off",
        SOURCES + "a_chunk_of_a_graph_that_is_cut_has_the_rows_that_it_states"),
    row("data", "column indices of sparse rows that are truth values, or have fractions", "refused by the name of the array",
        SOURCES + "indices_of_sparse_rows_are_whole_numbers"),
    row("data", "a Parquet file that is encrypted, or some of its columns are", "said to be; Arrow does not end the process",
        SOURCES + "a_parquet_file_that_is_encrypted_is_said_to_be"),
    row("data", "a file that an array is mapped from is cut short", "an error where it is read next; the process is not killed",
        SOURCES + "a_mapped_file_that_is_cut_short_does_not_kill_the_process"),
    row("data", "damaged metadata of an HDF5 file", "one line that names the file", SOURCES + "damaged_metadata_of_hdf5_is_one_line"),
    row("data", "a Matrix Market file that is cut in a number", "its line is named; SciPy does not end the process",
        SOURCES + "a_matrix_market_file_that_is_cut_in_a_number_does_not_kill_the_process"),
    row("data", "a damaged note of pandas in a Parquet file or an Arrow table", "one line; no column is left out for it",
        SOURCES + "a_damaged_note_of_pandas_about_its_index_is_one_line"),
    row("data", "dots in the names of a Parquet file's columns", "their memory is stated as that of others",
        SOURCES + "columns_with_dots_in_their_names_are_stated_as_others_are"),
    row("data", "missing entries of Arrow arrays, of whole numbers beyond 2^53 and of categories", "they are missing, and no entry of another row",
        SOURCES + "missing_entries_of_arrow_arrays_are_missing", SOURCES + "missing_whole_numbers_beyond_double_in_arrow_tables_are_read"),
    row("data", "an object that gives NumPy a masked array, as variables of netCDF4 do", "refused; no masked value is read",
        SOURCES + "the_mask_of_what_an_object_gives_is_not_ignored"),
    row("data", "sparse matrices with invalid index arrays, or small integers stored twice, in `fit`", "refused; sums do not wrap around",
        SOURCES + "invalid_sparse_matrices_are_refused_by_fit_too", SOURCES + "small_integers_stored_twice_do_not_wrap_around_in_fit"),
    row("data", "a partition of a frame of Dask with columns in another order", "one line that names both orders",
        SOURCES + "a_partition_with_columns_in_another_order_is_named"),
    row("data", "integers of Zarr that an attribute says are of the other sign; packed values of an open array outside a disk", "refused; decoded",
        SOURCES + "integers_that_another_sign_is_noted_of_are_refused", SOURCES + "packed_values_of_an_open_array_in_memory_are_decoded"),
    row("data", "a damaged header of a NumPy file", "one line that names the file", SOURCES + "a_damaged_header_of_numpy_is_said_to_be"),
    row("data", "a folder of Parquet files with a link to a folder that it is in", "one line that names the link",
        SOURCES + "a_folder_with_a_link_to_itself"),
    row("data", "a title of a column of text that is no name of a folder: too long, of several lines", "its place is its name",
        SOURCES + "titles_of_text_that_are_no_names_of_folders"),
    row("data", "an object that gives no array where it says it does; a data frame of Dask with a name twice", "one line",
        SOURCES + "objects_that_give_no_array_are_one_line"),
    row("data", "small integers, booleans, float16, integers beyond 2^53", "widened; those that float64 cannot hold are named",
        "readers/test_conformance.py::test_types_are_kept_and_small_ones_widened",
        "readers/test_conformance.py::test_whole_numbers_that_float64_cannot_hold_are_named",
        "readers/test_conformance.py::test_so_are_those_in_a_column_beside_one_of_another_type",
        "readers/test_conformance.py::test_so_are_those_in_lists_and_frames_of_dask",
        "readers/test_conformance.py::test_so_are_groups_that_are_kept_apart_in_a_text_file"),
    row("data", "a path with # or ?, beside a store that has the name before the sign", "it is part of the name, of sources and of outputs",
        "readers/test_conformance.py::test_signs_of_a_url_in_a_path_are_part_of_its_name",
        "job/test_workflow.py::test_signs_of_a_url_in_the_path_of_the_output_are_part_of_its_name"),
    row("data", "empty lines and missing entries in a text file of labels or targets", "an empty line is named; missing entries of numbers are NaN",
        "readers/test_vectors.py::test_an_empty_line_does_not_make_the_name_of_a_column_its_first_entry",
        "readers/test_vectors.py::test_missing_entries_of_numbers_in_a_text_file_are_nan"),
    row("data", "whole numbers beyond 2^53, or int64, in a text file of labels or targets", "digit by digit, or as float64 has them",
        "readers/test_vectors.py::test_large_whole_numbers_of_a_text_file_are_no_others"),
    row("data", "a tall table with text", "it is split in runs of lines: eight times the rows take no more memory",
        "readers/test_convert.py::test_eight_times_the_rows_of_a_table_take_no_more_memory"),
    row("data", "a table with one column, some of whose entries are empty", "they are rows; a blank line is none",
        "job/test_tables.py::test_an_empty_entry_of_the_only_column_is_a_row"),
    row("data", "a packed text file that is damaged", "one line that names it",
        "job/test_tables.py::test_a_packed_table_that_is_damaged_is_named"),
    row("data", "big-endian, Fortran order, read-only, unaligned", "the same bits", VALUES + "layouts_of_memory_give_the_same_bits"),
    row("data", "no rows, no columns", "refused; a merge with none changes nothing",
        ENGINES + "empty_sources_are_refused", "summaries/test_laws.py::test_laws"),
    row("data", "fewer rows than clusters, one row, one column", "named, or defined",
        "job/test_workflow.py::test_impossible_jobs_leave_nothing_behind", "job/test_workflow.py::test_one_column",
        KMEANS + "as_many_clusters_as_rows_and_one"),
    row("data", "all rows equal", "one cluster and a warning; no centre where no row is",
        KMEANS + "identical_rows_give_one_cluster_and_a_warning", KMEANS + "an_empty_cluster_never_becomes_the_origin"),
    row("data", "chunks of many heights, the last one smaller, beyond the limit", "read, or the limit is named",
        "readers/test_partitions.py::test_chunks_of_many_heights",
        "readers/test_bad_input.py::test_the_limits_are_the_last_allowed_values"),
    row("data", "labels of one class, with NaN, too many", "one line, or a note",
        "selectors/test_supervised_classification.py::test_bad_labels_are_one_readable_line",
        "job/test_workflow.py::test_labels_that_are_no_classes_are_said_to_be"),
    row("number", "mean far beyond the deviation", "nine digits of the variance",
        "summaries/test_moments.py::test_variances_far_from_zero_keep_nine_digits",
        "selectors/test_selectors.py::test_variance_keeps_its_digits_far_from_zero"),
    row("number", "columns of very different size", "a selection that standardises is that of the columns scaled alike",
        VALUES + "sizes_of_columns_change_no_selection_that_standardises"),
    row("number", "constant columns, zeros", "never before one that varies; counted",
        "selectors/test_selectors.py::test_duplicated_zero_and_constant_columns",
        SUPERVISED + "columns_that_do_not_vary_are_reported"),
    row("number", "copies of columns", "the first is taken; copies last",
        "guarantees/test_copies.py::test_copies_are_chosen_last", SUPERVISED + "of_equal_columns_the_first_is_taken"),
    row("number", "a constant target", "no column, and a warning", SUPERVISED + "a_constant_target_selects_nothing_and_says_so"),
    row("number", "scores that are NaN", "ranked last",
        "selectors/test_selectors.py::test_ranks_put_nan_last_and_break_ties_by_the_lowest_index"),
    row("number", "one huge row", "finite, and what was lost is in the bound",
        "summaries/test_frequent_directions.py::test_directions_lost_beside_a_huge_one_are_counted_in_the_shrinkage"),
    row("number", "beyond 1e150; denormal numbers", "refused by row and column; denormal ones are no error",
        "summaries/test_frequent_directions.py::test_bad_blocks_are_named", VALUES + "denormal_numbers_are_numbers"),
    row("number", "weights without all of their digits (below 2.2e-308) or of text, targets whose squares are zero", "such weights count as 0, and text is refused; the target is called too small, not constant",
        VALUES + "weights_without_digits_count_as_zero", VALUES + "rows_of_weights_without_digits_are_in_no_certificate_or_index",
        VALUES + "weights_that_are_text_are_said", VALUES + "a_target_too_small_to_be_squared_is_not_called_constant"),
    row("number", "a target of classes that may be numbers", "floats beyond 2^53 are refused; a warning where there are more classes than one for two rows",
        VALUES + "numbers_that_are_hardly_classes_are_said"),
    row("number", "a class of fewer rows than there are folds", "a warning with its name and its rows",
        VALUES + "a_class_of_fewer_rows_than_folds_is_named"),
    row("number", "squares that float32 cannot hold", "summed in float64",
        "summaries/test_moments_precision.py::test_float32_with_a_huge_row_neither_overflows_nor_forgets_the_others",
        "cluster/test_lloyd_kernels.py::test_magnitudes_far_beyond_float32"),
    row("number", "k-means far from zero", "the inertia of centred rows", KMEANS + "far_from_the_origin"),
    row("config", "numbers of clusters without end (`range(2, 10**30)`)", "refused before they are walked: more than the rows",
        VALUES + "more_clusters_than_rows_are_refused_before_the_numbers_are_walked"),
    row("config", "a number of repetitions, folds or grid points that would never end (10^30)", "refused: its range is declared",
        VALUES + "repetitions_that_would_never_end_are_refused", "job/test_config.py::test_every_mistake_is_named"),
    row("config", "more folds than rows, or groups of rows that are all in one fold", "refused before the pass",
        VALUES + "folds_that_the_rows_or_groups_do_not_fill_are_refused_before_the_pass"),
    row("store", "a checkpoint flipped, cut, swapped, of another job", "noticed, named, computed again; the same bits",
        DAMAGE + "every_node_of_a_checkpoint", DAMAGE + "nodes_of_another_run_and_of_other_rows",
        SAVED + "damaged_files_are_named_and_computed_again", DAMAGE + "every_kind_of_summary",
        DAMAGE + "the_record_of_finished_stages", DAMAGE + "manifest_and_assignment"),
    row("store", "a saved state of a pass in panels flipped, cut, swapped, of another pass", "noticed, named; the pass goes on from the state before",
        PANELS + "damaged_states_are_named_and_the_one_before_is_used", PANELS + "states_of_another_pass_are_not_taken",
        PANELS + "a_pass_goes_on_without_states_that_it_cannot_write", PANELS + "rows_that_change_meanwhile_are_in_no_state"),
    row("store", "disk full, read-only, no permission", "without checkpoints, or one line; no half file; the same bits when run again",
        NTH, CHAOS, SAVED + "a_run_goes_on_without_checkpoints_it_cannot_write",
        INTERRUPTED + "a_full_disk_is_named_and_leaves_no_half_file"),
    row("store", "a disk that is really full, a limit of the size of files",
        "the error names the output, what is finished, and how to go on",
        DISKS + "a_job_names_the_output_and_goes_on", DISKS + "so_do_other_commands"),
    row("store", "files that others may read", "permissions are those of the umask", DISKS + "permissions_follow_the_umask"),
    row("store", "two runs in one folder", "the second is refused with process, machine and time of the first",
        INTERRUPTED + "a_second_run_in_the_same_folder_is_refused", FOLDER + "a_live_lock_is_respected",
        FOLDER + "of_many_newcomers_one_takes_a_dead_lock_over",
        FOLDER + "a_folder_that_another_run_claims_at_the_same_moment_is_ours"),
    row("store", "a lock of another machine, with a time in the future", "taken over, unless a heartbeat comes",
        FOLDER + "a_lock_of_another_host_with_a_time_in_the_future_is_watched_for_a_heartbeat"),
    row("store", "a file of metrics that would replace another file", "refused before anything is read",
        "job/test_workflow.py::test_metrics_replace_no_other_file"),
    row("store", "output, checkpoints or metrics inside the source, its Zarr store, or a link to it", "refused before anything is written",
        INSIDE + "a_job_does_not_write_into_its_source", INSIDE + "a_run_does_not_replace_the_features_that_it_reads",
        INSIDE + "commands_do_not_write_into_their_source"),
    row("store", "the output folder is somebody else's", "not touched", FOLDER + "what_is_not_ours_is_not_touched",
        "readers/test_convert.py::test_what_is_not_ours_is_never_overwritten"),
    row("store", "an output folder that this user may not list, write or make", "one line that names it",
        FOLDER + "a_folder_that_another_user_may_not_list_or_write_is_one_line"),
    row("store", "the output folder is moved or deleted during a run, or another run begins in its place", "one line that says so, whatever failed first; nothing is written into the other's, and nothing is left",
        FOLDER + "a_folder_that_goes_away_is_not_made_again", FOLDER + "a_folder_of_another_run_at_the_same_place_is_left_alone",
        FOLDER + "what_tasks_made_where_a_folder_was_is_removed_and_nothing_else", FOLDER + "a_lock_that_is_deleted_ends_no_run"),
    row("store", "an output folder that is a link to nothing", "said to be one", FOLDER + "a_link_to_nothing_is_said_to_be_one"),
    row("store", "files left by a killed writer, old checkpoints", "ignored; removed once they are old",
        SAVED + "left_over_partial_files_are_ignored", "faults/test_long_runs.py::test_old_and_large_checkpoints_are_removed"),
    row("store", "a store without atomic renames", "names have the digest of the content",
        SAVED + "a_url_is_as_good_as_a_folder", DAMAGE + "nodes_of_another_run_and_of_other_rows"),
    row("store", "links, pipes, foreign JSON in an output folder", "refused, or damage; nothing outside is read, written or removed",
        FOREIGN + "nothing_is_written_or_removed_through_a_link", FOREIGN + "no_pipe_is_waited_for",
        FOREIGN + "json_that_is_nested_too_deep_is_damage", FOREIGN + "a_manifest_of_other_types_is_one_line",
        FOREIGN + "a_later_format_is_not_guessed_at", FOREIGN + "verify_looks_at_no_file_outside"),
    row("store", "a folder in the place of a file in an output folder, or a file in the place of a folder", "refused by its name before anything is done; nothing in it is touched",
        FOREIGN + "a_folder_in_the_place_of_a_file_is_named_and_stays", FOREIGN + "a_file_in_the_place_of_a_folder_is_named_and_stays"),
    row("store", "a chunk becomes a link or a pipe while a job runs", "refused where it is read",
        FOREIGN + "a_chunk_that_leads_elsewhere_after_the_store_was_opened"),
    row("config", "modules in the folder that a program is started in", "not imported, by no child process either",
        FOREIGN + "modules_of_the_folder_that_a_program_is_started_in_are_not_imported", FOREIGN + "nor_by_workers"),
    row("config", "unknown and repeated keys, numbers as text, traps of YAML", "key, value, line, and what was expected",
        "job/test_config.py::test_every_mistake_is_named", "job/test_config.py::test_yaml_traps"),
    row("config", "paths and links out of the store, control characters, URL schemes", "refused",
        BAD_INPUT, HOSTILE + "links_out_of_a_store_are_not_followed"),
    row("config", "numbers of clusters and features out of range", "refused before anything starts",
        "job/test_workflow.py::test_impossible_jobs_leave_nothing_behind", "job/test_cli_mistakes.py::test_bad_job_files"),
    row("config", "resumed with other settings, data or versions", "done again, with the names of what changed",
        SAVED + "whatever_decides_the_bits_changes_the_name",
        "job/test_rerun.py::test_what_changed_is_done_anew_and_what_did_not_is_not",
        "job/test_rerun.py::test_stages_of_different_libraries_are_said_to_be"),
    row("report", "names that are script, formulas, megabytes, control characters", "text; disarmed, cut",
        "report/test_hostile.py::test_hostile_text_stays_text", "report/test_hostile.py::test_ten_megabytes_of_name_do_not_reach_the_page",
        HOSTILE + "no_file_of_a_run_can_run_script_or_formulas"),
    row("secrets", "keys of object stores, URLs with tokens", "in no file that a run leaves, and in no message",
        HOSTILE + "secrets_are_in_no_file_of_a_run", "readers/test_bad_input.py::test_credentials_are_never_shown",
        HOSTILE + "urls_with_secrets_are_refused_without_repeating_them"),
    row("secrets", "an address with a password or a signature where no address belongs", "refused, without repeating what is secret",
        HOSTILE + "secrets_of_an_address_where_none_belongs_are_not_repeated",
        HOSTILE + "secrets_of_an_address_are_in_no_error_of_python",
        CLUSTER + "a_password_in_an_address_is_refused_and_not_repeated"),
    row("code", "files that hold code: pickles in `.npy`, `.npz`, Zarr", "never run",
        HOSTILE + "nothing_that_is_read_runs_code", HOSTILE + "no_module_unpickles_what_it_reads"),
    row("code", "a folder whose manifest names a scheduler, which could answer with code", "never asked",
        HOSTILE + "the_scheduler_that_a_manifest_names_is_not_asked"),
    row("time", "a clock that jumps by an hour", "the same bits, or exit code 75 where Dask holds messages back; limits are counted by a clock that cannot be set",
        UNATTENDED + "metrics_go_on_when_the_clock_is_set_back",
        OPERATORS + "messages_that_dask_holds_back_are_said_and_another_client_gets_them", CHAOS),
    row("time", "standard output on a full disk", "one line that names it", UNATTENDED + "output_that_cannot_be_written_is_one_line"),
    row("config", "too few open files for a cluster", "the number it takes, before it is started", OPERATORS + "too_few_open_files_are_said"),
    row("config", "too few processes and threads (ulimit -u)", "the number a cluster takes, before it is started; the limit is named",
        OPERATORS + "too_few_threads_for_a_cluster_are_said", OPERATORS + "no_thread_left_is_said",
        OPERATORS + "so_is_one_that_a_partition_would_start"),
    row("config", "`/dev/shm` is missing or cannot be written", "said before a cluster is started; threads need none",
        OPERATORS + "no_room_for_semaphores_is_said"),
    row("store", "compiled kernels: a file that was cut short, a disk without room for them", "compiled again; one line says that they cannot be kept",
        KERNELS + "a_file_of_a_compiled_kernel_that_was_cut_short_is_made_again",
        KERNELS + "a_disk_without_room_for_compiled_kernels_ends_no_work"),
    row("config", "a setting of Dask in the environment that is no duration", "named, before a cluster is started",
        OPERATORS + "a_setting_of_dask_that_is_no_duration_is_named_before_anything_is_started"),
    row("config", "a setting of Dask with which no cluster starts: a time too short, a scratch folder that cannot be", "the settings that are not Dask's own are named",
        OPERATORS + "a_setting_of_dask_with_which_no_cluster_starts_is_named"),
    row("config", "a broken file of the configuration of Dask", "named, with what to do",
        UNATTENDED + "a_broken_file_of_the_configuration_of_dask_is_one_line"),
    row("time", "nobody watches", "exit codes, a last line of JSON also when stopped, records as log, a file of metrics",
        UNATTENDED + "an_error_is_one_line_with_its_exit_code", UNATTENDED + "so_is_the_end_of_a_job_that_is_stopped",
        UNATTENDED + "a_log_of_records", UNATTENDED + "a_file_of_metrics",
        UNATTENDED + "metrics_that_cannot_be_written_end_no_job"),
    row("time", "hundreds of jobs in one process", "descriptors, threads and memory stay as they are",
        "faults/test_long_runs.py::test_two_hundred_jobs_leave_nothing_in_the_process"),
    row("time", "a service that runs jobs for a week", "no temporary file, no lock; old nodes and half files are removed",
        "faults/test_long_runs.py::test_a_service_of_a_week_leaves_nothing_behind"),
)  # fmt: skip


def page() -> str:
    """Return the table as Markdown."""
    lines = []
    for number, fault in enumerate(FAULTS, 1):
        tests = "<br>".join(f"`{name}`" for name in fault.tests)
        lines.append(f"| {number} | {fault.group}: {fault.what} | {fault.outcome} | {tests} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Jobs as tasks of Prefect and Airflow."""

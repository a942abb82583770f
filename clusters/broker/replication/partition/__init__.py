"""One replica of one partition, as a frozen value: functions that know no request and no broker.

Rules of logs, leader epochs, producers, high watermark and ISR change here.
"""

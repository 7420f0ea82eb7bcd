from spark_ckpt.coordinator.main import main

if __name__ == "__main__":
    main()
